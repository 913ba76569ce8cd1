# Targets for common tasks; CMakePresets.json has the settings. Each target first installs missing packages
# (tools/setup.sh; SETUP=: skips this).
#
#   make build      the library and the program, in build/release
#   make test       builds and runs all tests
#   make demo       trains on real text in bf16 and in fp8 and compares (TEXT=file: on your own text)
#   make docs       builds a site of the documentation, with a search, in build/site (needs Python)
#   make bench      measures the speed of the kernels
#   make cuda       the CUDA backend (needs the CUDA toolkit)
#   make cuda-tests the CUDA backend, and its tests on the CPU
#   make install    into PREFIX (/usr/local), below DESTDIR if given
#   make uninstall  removes the files of `make install`, with the same PREFIX and DESTDIR
#   make deb        Debian packages, in build/package
#   make package    the same, and a Python wheel
#   make format     formats the source
#   make clean      removes build/ (not runs/)

PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
SETUP ?= tools/setup.sh
CLANG_FORMAT ?= $(shell command -v clang-format-14 || echo clang-format)

MAKEFLAGS += --no-print-directory

configure = cmake --preset release
compile = cmake --build --preset release --parallel $(JOBS)
# The installed files, one a line.
installed = build/release/installed$(subst /,-,$(abspath $(PREFIX))).txt

.PHONY: build test demo cuda cuda-tests docs bench install uninstall deb package format clean

build:
	@$(SETUP) build
	$(configure) -DOTTAVA_TESTS=OFF
	$(compile)

test:
	@$(SETUP) build test
	$(configure)
	$(compile)
	ctest --preset release --parallel $(JOBS)

demo:
	@$(SETUP) build demo
	@STARTED=$$(date +%s) && export STARTED && \
	$(configure) -DOTTAVA_TESTS=OFF && $(compile) && tools/demo.sh

cuda:
	@$(SETUP) build
	cmake --preset cuda -DOTTAVA_TESTS=OFF
	cmake --build --preset cuda --parallel $(JOBS)

cuda-tests:
	@$(SETUP) build test
	cmake --preset cuda
	cmake --build --preset cuda --target cuda_tests --parallel $(JOBS)
	ctest --preset cuda --parallel $(JOBS)

docs:
	@$(SETUP) docs
	[ -x build/docs-venv/bin/mkdocs ] || \
	{ python3 -m venv build/docs-venv && build/docs-venv/bin/pip install --quiet 'mkdocs==1.6.1'; }
	build/docs-venv/bin/mkdocs build --strict --quiet
	@echo "build/site/index.html"

bench: build
	build/release/ottava bench gemm

install: build
	cmake --install build/release --prefix $(PREFIX)
	@cp build/release/install_manifest.txt $(installed)
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true

uninstall:
	@tools/uninstall.sh $(installed) $(PREFIX)
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true

deb: build
	@$(SETUP) deb
	cpack --config build/release/CPackConfig.cmake -B build/package

package: deb
	tools/make_wheel.sh

format:
	find src cli include tests examples bench -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' | xargs $(CLANG_FORMAT) -i

clean:
	rm -rf build
