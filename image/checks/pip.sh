# shellcheck shell=sh disable=SC2154,SC2164
version "$(pip --version)"
# As the box's user, without a virtual environment and without options, which Debian's pip refuses by default.
pip install -q --no-input --disable-pip-version-check six==1.17.0 >log 2>&1 || fail "$(grep -m 1 -i error log)"
is "the installed package" "$(python3 -c 'import six; print(six.__version__)')" 1.17.0
python3 -m venv --without-pip v
v/bin/python -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)' || fail "no virtual environment"
pip uninstall -q -y six >log 2>&1
! python3 -c 'import six' 2>/dev/null || fail "the package is still there"
