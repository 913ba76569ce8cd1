#!/bin/sh
# tools/setup.sh prints the commands that need root before it runs them. Here stubs replace these commands,
# and only print.
. "$(dirname "$0")/checks.sh"

root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir bin
cat >bin/dpkg-query <<'END'
#!/bin/sh
for package; do :; done
[ "$package" = cmake ] || echo "install ok installed"
END
printf '#!/bin/sh\necho 1000\n' >bin/id
printf '#!/bin/sh\necho "sudo ran: $*" >>"$RAN"\ncp out out-before 2>/dev/null\nexit 0\n' >bin/sudo
printf '#!/bin/sh\nexit 9\n' >bin/apt-get
chmod +x bin/*

RAN=$PWD/ran PATH=$PWD/bin:$PATH "$root/tools/setup.sh" build >out 2>err
code=$?
trouble=$(missing out "cmake|the build system|sudo apt-get update|sudo apt-get install --yes \
--no-install-recommends cmake|SETUP=:|Installed.")
[ $code -eq 0 ] || trouble="exit code $code: $(cat err)"
report "setup.sh prints the missing packages and the commands" "$trouble"
report "setup.sh prints the commands before it runs sudo" "$(missing out-before \
    "sudo apt-get update|sudo apt-get install --yes --no-install-recommends cmake")"
report "setup.sh runs only the printed commands" "$([ "$(wc -l <ran)" -eq 2 ] && grep -q \
    'install --yes --no-install-recommends cmake$' ran || cat ran)"

# CMake is installed but too old.
printf '#!/bin/sh\necho "install ok installed"\n' >bin/dpkg-query
printf '#!/bin/sh\necho "cmake version 3.22.1"\n' >bin/cmake
chmod +x bin/cmake
PATH=$PWD/bin:$PATH "$root/tools/setup.sh" build >out 2>err
code=$?
trouble=$(missing err "cmake 3.22.1 is older than 3.25|pip install cmake")
[ $code -eq 1 ] || trouble="exit code $code"
report "setup.sh refuses an old CMake" "$trouble"
trouble=
PATH=$PWD/bin:$PATH "$root/tools/setup.sh" test >out 2>err || trouble=$(cat err)
report "setup.sh needs CMake only to build" "$trouble"
rm bin/cmake

# Without apt-get, setup.sh uses Homebrew. A formula that replaces two packages is installed once. No formula
# is installed for make, gcc and g++.
mkdir brew
for tool in awk cat cc grep printf sh tail env; do ln -s "$(command -v $tool)" brew/ 2>/dev/null; done
cat >brew/brew <<'END'
#!/bin/sh
[ "$1" = list ] && { [ "$3" = cmake ]; exit; }
echo "brew ran: $*"
END
chmod +x brew/brew
PATH=$PWD/brew "$root/tools/setup.sh" build test >out 2>err
code=$?
trouble=$(missing out \
    "joins ranks|brew ran: install pkgconf libyaml tomlplusplus jansson pcre2 utf8proc zlib zstd curl \
openssl@3 open-mpi cmocka")
[ $code -eq 0 ] || trouble="exit code $code: $(cat err)"
report "setup.sh installs the formulas with Homebrew" "$trouble"
finish
