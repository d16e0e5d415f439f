#!/bin/sh
# What the GitHub Action and the GitLab template do: transom-ci.sh install|up|lint|report|delete
# Settings are environment variables: TRANSOM_NAME, TRANSOM_VERSION (a version, a wheel, or "skip" if it is installed),
# TRANSOM_UP (options of `transom up`), TRANSOM_LINT (paths and options of `transom lint`), TRANSOM_REPORT (the file).
set -eu

place=${RUNNER_TOOL_CACHE:-${CI_PROJECT_DIR:-$HOME}}/.transom
PATH=$place/bin:$PATH  # of the next commands of other CI systems, too

summary() {  # a section of the job's summary, where the CI has one
    [ -n "${GITHUB_STEP_SUMMARY:-}" ] || return 0
    { echo "### $1"; echo '```'; cat; echo '```'; } >> "$GITHUB_STEP_SUMMARY"
}

install() {
    case "${TRANSOM_VERSION:=latest}" in
        skip) transom version; return ;;
        latest) what=transom-k8s ;;
        *.whl) what=$TRANSOM_VERSION ;;
        *) what="transom-k8s==$TRANSOM_VERSION" ;;
    esac
    python3 -m venv "$place"
    "$place/bin/pip" install --quiet --disable-pip-version-check "$what"
    if [ -n "${GITHUB_PATH:-}" ]; then echo "$place/bin" >> "$GITHUB_PATH"; fi
    "$place/bin/transom" version
}

up() {
    kubeconfig=${KUBECONFIG:-${RUNNER_TEMP:-${CI_PROJECT_DIR:-$HOME}}/transom.kubeconfig}
    # shellcheck disable=SC2086  # options are words
    transom up --kubeconfig "$kubeconfig" ${TRANSOM_UP:-}
    if [ -n "${GITHUB_ENV:-}" ]; then echo "KUBECONFIG=$kubeconfig" >> "$GITHUB_ENV"; fi
    if [ -n "${GITHUB_OUTPUT:-}" ]; then echo "kubeconfig=$kubeconfig" >> "$GITHUB_OUTPUT"; fi
}

lint() {
    format=text
    if [ -n "${GITHUB_ACTIONS:-}" ]; then format=github; fi
    # shellcheck disable=SC2086
    transom lint --output "$format" ${TRANSOM_LINT:-.}
}

report() {  # never fails: it runs after a failure, whose exit code counts
    transom doctor --name "${TRANSOM_NAME:-transom}" 2>&1 | tee /dev/stderr | summary "transom doctor" || true
    transom report --name "${TRANSOM_NAME:-transom}" --output "${TRANSOM_REPORT:-transom-report.tar.gz}" || true
}

case "${1:-}" in
    install | up | lint | report) "$1" ;;
    delete) transom delete ;;
    *) echo "usage: transom-ci.sh install|up|lint|report|delete" >&2; exit 2 ;;
esac
