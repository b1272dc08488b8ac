#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The tables of this clone have the values of docs/measurements, and tools/bench/tables writes those of a small tree
# with files of two machines, of which one has an old, a newer and a quick one, as expected. Exit code 77: there is no
# jq.
set -euo pipefail

tables=$LOCKSTEP_SOURCE_DIR/tools/bench/tables
"$tables" --check

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{docs/measurements,tools/bench}
cd "$tree"

cat >tools/bench/rows.txt <<'END'
# a comment
one | first --quick x | peer |
  what the first
  compares |
  a.1 a.2
one | second | alone | the second | b
two | first --quick x | peer | another text | a.2
END

# measured FILE LEVEL DATE QUICK ROW...: each row is NAME=RATIOS
measured() {
  local file=$1 level=$2 date=$3 quick=$4 row rows=()
  shift 4
  for row in "$@"; do rows+=("{\"name\": \"${row%%=*}\", \"ratios\": [${row#*=}]}"); done
  cat >"docs/measurements/$file.json" <<END
{"processor": "Some CPU", "level": "$level", "commit": "none", "commit_date": "$date", "quick": $quick,
 "rows": [$(IFS=, && echo "${rows[*]}")]}
END
}
measured old avx512 2025-12-01 false a.1=0.111 b=0.222
measured new avx512 2026-03-01 false a.1=0.3 a.2=0.0861
measured quick avx512 2026-03-01 true a.1=0.9
measured other avx2 2026-02-01 false a.1=0.1,0.2 b=1.25 # two runs
measured older avx2 2026-01-01 false a.1=0.7 a.2=0.07

# A machine without a result for the table has no column.
measured third generic 2026-02-01 false c=0.5

page() { # TABLES: between the text of a page
  printf 'Text\n\n<!-- measurements: one -->\n%s<!-- end of measurements -->\n\nmore | text\n' "$1"
}
page $'| stale |\n' >README.md
printf 'No tables\n' >docs/other.md
! "$tables" --check --tree . 2>found || { echo "--check did not notice stale tables" && exit 1; }
grep -q 'README.md' found
"$tables" --tree . 2>/dev/null
"$tables" --check --tree .
# shellcheck disable=SC2016 # the ` of Markdown
page '
| command | what is compared | Some CPU (avx2) | Some CPU (avx512) |
|---|---|---|---|
| `tools/bench/first --quick x` | what the first compares | 0.10 to 0.20, 0.07 | 0.30, 0.086 |
| `tools/bench/second` | the second | 1.25 | 0.22 |

' >expected
diff expected README.md

# At more than 90 days before the newest commit, figures are left out.
measured old avx512 2025-11-30 false a.1=0.111 b=0.222
"$tables" --tree . 2>/dev/null
sed -i '/second/ s/0.22/-/' expected
diff expected README.md

# A changed figure is noticed.
sed -i 's/0.086/0.085/' README.md
! "$tables" --check --tree . 2>/dev/null || { echo "--check did not notice a changed figure" && exit 1; }
