# An image with the CUDA backend, for a machine with an NVIDIA driver and its container toolkit:
#
#   docker build -f packaging/docker/cuda.Dockerfile -t ottava-cuda .
#   docker run --rm --gpus all ottava-cuda doctor
FROM nvidia/cuda:13.0.1-cudnn-devel-ubuntu24.04 AS build
WORKDIR /src
COPY tools/setup.sh tools/
RUN tools/setup.sh build deb
COPY . .
RUN make deb && cmake --preset cuda -DOTTAVA_TESTS=OFF && cmake --build build/release --target ottava_plugin

# This image has cuBLASLt and cuDNN where the build has them.
FROM nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04
COPY --from=build /src/build/package/*.deb /packages/
RUN apt-get update && apt-get install -y --no-install-recommends /packages/*.deb openmpi-bin && \
    rm -rf /packages /var/lib/apt/lists/*
COPY --from=build /src/build/release/libottava_cuda.so /usr/lib/
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
WORKDIR /work
ENTRYPOINT ["ottava"]
