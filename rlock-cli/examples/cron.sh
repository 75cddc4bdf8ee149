#!/bin/sh
# A job of cron that is installed on several machines: one of them runs it, the others skip it.
#
#   0 3 * * *  RLOCK_URL=redis://locks.internal:6379/ /usr/local/bin/cron.sh /srv/report
#
# `--min-hold` covers clocks that differ: the lock stays taken for a minute, even if the job is quick.
# `--max-hold` stops a job that hangs. `-E 0` makes a run that is skipped a success.
set -eu

if [ "${RLOCK_KEY:-}" != report:daily ]; then
  exec rlock run --quiet --no-wait -E 0 --min-hold 1m --max-hold 2h --key report:daily -- "$0" "$@"
fi

# A machine that is paused for longer than the lease may wake up here after another one has taken over. Storage that
# keeps the largest token it has seen refuses such a late write:
#
#   psql -v fence="$RLOCK_TOKEN" -c "UPDATE report SET body = 'x', fence = :fence WHERE fence <= :fence"
echo "written with token $RLOCK_TOKEN" >>"$1"
