# An image with the program, the library and Open MPI. In the root of the source tree:
#
#   docker build -f packaging/docker/cpu.Dockerfile -t ottava .
#   docker run --rm -v "$PWD:/work" ottava train /usr/share/ottava/configs/debug.toml
FROM debian:12 AS build
WORKDIR /src
COPY tools/setup.sh tools/
RUN tools/setup.sh build deb
COPY . .
RUN make deb

FROM debian:12-slim
COPY --from=build /src/build/package/*.deb /packages/
RUN apt-get update && apt-get install -y --no-install-recommends /packages/*.deb openmpi-bin && \
    rm -rf /packages /var/lib/apt/lists/*
# mpirun refuses root otherwise.
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
WORKDIR /work
ENTRYPOINT ["ottava"]
