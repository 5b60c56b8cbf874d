#!/bin/sh
# Give the repository another address, in every file that names it:
#
#   sh tools/move.sh ACCOUNT/REPO
set -eu
cd "$(dirname "$0")/.."

case ${1-} in
  */*/* | /* | */ | *[!A-Za-z0-9._/-]*) right= ;;
  */*) right=yes ;;
  *) right= ;;
esac
[ -n "$right" ] || { echo "The new address must be ACCOUNT/REPO; got '${1-}'." >&2; exit 1; }

old=$(sed -n 's|^  url: https://github.com/||p' _config.yml)
export NEW="$1" OLD="$old"
git grep -lz "$old" | xargs -0 perl -pi -e '
  BEGIN { ($account, $name) = split "/", $ENV{NEW}; ($was, $called) = split "/", $ENV{OLD}; }
  s|\Q$was\E(\.github\.io)?/\Q$called\E|$account . ($1 // "") . "/$name"|ge;  # links and pages
  s|^cd \Q$called\E$|cd $name|;                                               # into the clone'
echo "The repository's address is now https://github.com/$1. See git diff, and run make poster: posters name it."
