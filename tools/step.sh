#!/bin/sh
# Run one step of the set-up. It is quiet if it succeeds; if it fails, it says why and what to do.
#
#   sh tools/step.sh [--all] "installing attnlib" command argument ...
#
# What the command prints is held in a variable, not in a file, because a full disk is one of the
# reasons to fail. After a failure, stderr gets the lines that matter (with --all, every line) and one
# line of advice, and the exit status is that of the command.

SHOWN=15

all=
if [ "$1" = --all ]; then
  all=yes
  shift
fi
step=$1
shift

# Whoever interrupts a step knows why it stopped.
trap 'exit 130' INT

said=$("$@" 2>&1) && exit
status=$?

# npm says its reason first, then a trace and its usage; pip and Python say theirs last.
errors=$(printf '%s\n' "$said" | grep -E '^npm (error|ERR!) ?[^ }]')
if [ -n "$all" ]; then
  shown=$said
elif [ -n "$errors" ]; then
  shown=$(printf '%s\n' "$errors" | sed '/^npm [^ ]* Usage:$/,$d' | sed "${SHOWN}q")
else
  # pip tries each address again several times: the last time is enough.
  shown=$(printf '%s\n' "$said" | grep -Ev 'Retry\(total=[1-9]' | tail -n "$SHOWN")
fi

# Find the line that names a reason, and show it as well if it is not among those shown.
named() {
  found=$(printf '%s\n' "$said" | grep -Ev 'Retry\(total=[1-9]' | grep -Ei "$1" | sed 1q)
  [ -n "$found" ] || return 1
  case $shown in
    *"$found"*) ;;
    *) shown=$(printf '%s\n%s' "$found" "$shown") ;;
  esac
}

if named 'certificate verify failed|ssl certificate|SSLError|self.signed cert|CERT_(HAS|NOT|UNTRUSTED)|unable.to.(get.(local.)?issuer|verify.*(leaf|certificate))'; then
  advice='a certificate was not accepted, as happens behind a proxy that has its own. Name the file of that certificate: export PIP_CERT=FILE NODE_EXTRA_CA_CERTS=FILE (the first is for pip, the second for npm). Then run the same command again.'
elif named 'ENOSPC|no space left|Errno 28\]|EDQUOT|quota exceeded'; then
  advice='the disk is full. The packages need up to 6 GB in this folder, and their downloads a few more in the folder for temporary files, which TMPDIR names. Make room, then run the same command again.'
elif named 'ECONN|(^|[^a-z])ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET|connection (refused|reset|broken|timed out|aborted)|name resolution|name or service not known|network is unreachable|timed out|max retries exceeded|proxyerror|tunnel connection failed|proxy authentication'; then
  advice='the network gave no answer. Check the connection; behind a proxy, export HTTPS_PROXY=http://HOST:PORT; if you use a mirror, check PIP_INDEX_URL and NPM_CONFIG_REGISTRY. Then run the same command again.'
elif named 'no matching distribution|ETARGET|npm (error|ERR!) code E40[0-9]'; then
  advice='the index has no such version for this Python and this system, or did not hand it out. If you use a mirror, check PIP_INDEX_URL and NPM_CONFIG_REGISTRY; to try another Python, remove the folder .venv, then run make book PYTHON=python3.12.'
else
  named '^ *(error|fatal)[: ]'
  advice="the lines above give the reason. Mend what they name, then run the same command again. This step alone is: $*"
fi

printf '%s\nStopped while %s: %s\n' "$shown" "$step" "$advice" >&2
exit "$status"
