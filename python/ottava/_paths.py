"""Where the package keeps its files."""

import pathlib
import shutil

PACKAGE = pathlib.Path(__file__).resolve().parent


def copy_configs(folder="configs"):
    """Copies the configurations of the package to `folder`, which must not exist, and returns its path. Their
    sample text is configs/text/genesis.txt, so run them in the folder that contains configs/.

        python3 -m ottava configs && ottava train configs/debug.toml"""
    source = PACKAGE / "configs"
    if not source.is_dir():
        raise FileNotFoundError(f"{source} does not exist: only the installed wheel has configurations")
    return pathlib.Path(shutil.copytree(source, folder)).resolve()
