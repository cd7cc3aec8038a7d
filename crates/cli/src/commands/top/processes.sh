# Processes, one a line: pid, parent, user, percent of a processor since its start, KiB of memory, command line.
# The first line is this shell's own pid. With procps the busiest come first; without it in no order.
LC_ALL=C
export LC_ALL
echo $$
if ps -eo pid=,ppid=,user:32=,pcpu=,rss=,args= >/dev/null 2>&1; then
  ps -eo pid=,ppid=,user:32=,pcpu=,rss=,args= --sort=-pcpu | cut -b1-400
  exit
fi
read -r up _ </proc/uptime || exit 1
up=${up%.*}
set -- /proc/[0-9]*
for d do
  read -r s <"$d/stat" || continue
  pid=${d#/proc/}
  name=${s#*\(}
  name=${name%\)*}
  set -f
  set -- ${s##*\) }
  set +f
  # A name with a newline in it hides the numbers, and what is no number must not get into arithmetic.
  case $2:${12}:${13}:${20}:${22} in *[!0-9:]* | *::* | :* | *:) continue ;; esac
  lived=$((up * 100 - ${20}))
  [ "$lived" -gt 0 ] || lived=1
  mille=$(((${12} + ${13}) * 1000 / lived))
  echo "$pid $2 - $((mille / 10)).$((mille % 10)) $((${22} * 4)) $name"
done 2>/dev/null
