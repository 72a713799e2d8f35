"""The rules of the guarantee, each judged by the truth alone."""
