# An image whose first release starts as fast as every other: its kernels are compiled when it is built.
#
#   docker build --tag dpunion .
#   docker run --rm --volume "$PWD:/data" dpunion release posts.parquet -u author -i word -e 1 -d 1e-6 --out words.csv
#
# EXTRAS: which optional parts are installed. UID: whose files are written in /data; `--build-arg UID=$(id -u)`.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim AS build
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:${PYTHON}-slim
ARG EXTRAS=databases,report
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir "$(echo /wheels/dpunion-*.whl)[${EXTRAS}]"
ARG UID=10001
RUN useradd --create-home --uid "${UID}" releaser && mkdir /data && chown releaser /data
USER ${UID}
# subtle: what was compiled is found again only by the same user, and for the same processor; "generic" is every one.
ENV XDG_CACHE_HOME=/home/releaser/.cache NUMBA_CPU_NAME=generic
RUN dpunion warm-up --quiet
WORKDIR /data
ENTRYPOINT ["dpunion"]
CMD ["--help"]
