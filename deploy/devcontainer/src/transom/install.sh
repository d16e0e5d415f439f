#!/bin/sh
# Installs transom into its own environment. The options of devcontainer-feature.json are environment variables.
# ROOT is for tests: a folder that stands for /.
set -eu
root=${ROOT:-}
place=$root/usr/local/share/transom
command -v python3 >/dev/null || { echo "transom: install Python 3.11 or later first, for example with the feature python" >&2; exit 1; }
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "transom: needs Python 3.11 or later" >&2; exit 1; }

what=transom-k8s
if [ -n "${EXTRAS:-}" ]; then what="$what[$EXTRAS]"; fi
if [ "${VERSION:-latest}" != latest ]; then what="$what==$VERSION"; fi
mkdir -p "$place" "$root/usr/local/bin" "$root/etc/bash_completion.d"
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check ${PIP_OPTIONS:-} "${PACKAGE:-$what}"
for command in transom kubectl-transom kubectl_complete-transom; do
    ln -sf "$place/venv/bin/$command" "$root/usr/local/bin/$command"
done
"$place/venv/bin/transom" completion bash > "$root/etc/bash_completion.d/transom"

if [ "${START:-true}" = true ]; then
    # The options are those of the time of installation.
    printf '#!/bin/sh\nexec transom up %s\n' "${OPTIONS:-}" > "$place/start"
else
    printf '#!/bin/sh\nexit 0\n' > "$place/start"
fi
chmod +x "$place/start"
