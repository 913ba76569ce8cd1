"""The part of the build that pyproject.toml cannot express: the version of CMakeLists.txt, and the wheel's
tag. The wheel has machine code but no extension module, so one wheel serves all versions of Python 3."""

import os

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class MachineCode(Distribution):
    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(version=os.environ["OTTAVA_VERSION"], cmdclass={"bdist_wheel": Wheel}, distclass=MachineCode)
