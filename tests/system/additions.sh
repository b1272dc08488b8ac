#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: additions.sh COMPILER CORE_LIBRARY GTEST_MAIN GTEST
#
# The table of CONTRIBUTING.md about the files that an addition touches is complete: each file that mentions the example
# of a row is listed there, and no other. In a copy of the tree, the files of the row "a metric" are changed as the row
# says: then the copy mentions the new metric in these files alone, and its unit tests compile and pass.
set -euo pipefail

compiler=$1 core=$2 gtest_main=$3 gtest=$4
metric=mean_target # the one that is added

# searched: the folders in which an addition is mentioned. Tests and prose mention examples in more places.
searched=(src include mpi checkpoints docs/configuration.md tests/fake_gpu/runs.txt tests/system/golden)

# rows: for each row of the table "KIND<tab>EXAMPLE<tab>FILES". Words of code without a slash are no files.
rows() {
  awk -F'|' '/^\| to add \| example \| files \|/ { inside = 1; next }
    !/^\|/ { inside = 0 }
    inside && $2 !~ /^-/ {
      kind = $2
      gsub(/^ +| +$/, "", kind)
      split($3, example, "`")
      n = split($4, word, "`")
      files = ""
      for (i = 2; i <= n; i += 2) if (word[i] ~ /\//) files = files " " word[i]
      print kind "\t" example[2] "\t" files
    }' CONTRIBUTING.md
}

# mentioning TEXT: the files of the searched folders with this text.
mentioning() { grep -rlF -- "$1" "${searched[@]}" | sort; }

# listed FILE...: those of them that lie in the searched folders.
listed() {
  local file folder
  for file in "$@"; do
    for folder in "${searched[@]}"; do [[ $file/ != "$folder"/* ]] || echo "$file"; done
  done | sort
}

fail() { echo "additions: $*" >&2 && exit 1; }

# insert FILE PATTERN TEXT: adds lines before the first line that matches, or before the last one if the pattern begins
# with "last:".
insert() {
  local file=$1 pattern=$2 which=head line
  [[ $pattern != last:* ]] || which='tail'
  line=$(grep -nE -- "${pattern#last:}" "$file" | cut -d: -f1 | "$which" -1)
  [[ -n $line ]] || fail "$file has no line '${pattern#last:}', before which something is added"
  { head -$((line - 1)) "$file" && printf '%s\n' "$3" && tail -n +"$line" "$file"; } >"$file.new"
  mv "$file.new" "$file"
}

# change FILE: the addition of a metric to one of the files of its row.
change() {
  case $1 in
    src/metrics/meter_rows.hpp)
      insert "$1" '^Meter top_k_meter' "Meter ${metric}_meter(const Section& options, std::int64_t classes);"
      ;;
    src/metrics/gathering_meters.cpp)
      insert "$1" 'last:^}  // namespace lockstep::metrics' "Meter ${metric}_meter(const Section&, std::int64_t) {
  return {.results = {{\"$metric\"}}, .read_all = [](const Samples& samples) {
            double sum = 0;
            for (std::size_t i = 0; i < samples.size(); ++i) sum += samples.target(i).front();
            return Reading{{sum / static_cast<double>(samples.size())}};
          }};
}
"
      ;;
    src/engine/evaluation/evaluation_counts.cpp)
      insert "$1" '\{"regression_order",' "      {\"$metric\", {regression}},"
      ;;
    src/metrics/table.cpp)
      insert "$1" '^ +\{"top_k",' "      {\"$metric\", \"Mean of the targets\", \"target\", {}, ${metric}_meter},"
      ;;
    include/lockstep/metrics/meter.hpp) insert "$1" '^/// top_k, confusion' "/// $metric," ;;
    tests/unit/metrics/meters_test.cpp)
      insert "$1" 'last:^}  // namespace meters_test' "TEST(MeanTargetTest, IsTheMeanOfTheTargets) {
  const Meter meter = make_meter(\"$metric\", 2, \"test\");
  const Samples samples = make_samples({{1, 0}, {0, 1}, {0, 1}}, {{0}, {1}, {1}});
  EXPECT_EQ(meter.read_all(samples).numbers, (std::vector<double>{2.0 / 3}));
}
"
      ;;
    docs/*.md | tests/fake_gpu/runs.txt | tests/system/golden/*) echo "$metric" >>"$1" ;;
    *) fail "the row of a metric lists $1, but nothing has to be added there" ;;
  esac
}

cd "$LOCKSTEP_SOURCE_DIR"
count=0
while IFS=$'\t' read -r kind example files; do
  count=$((count + 1))
  read -ra files <<<"$files"
  for file in "${files[@]}"; do [[ -e $file ]] || fail "CONTRIBUTING.md, $kind: there is no $file"; done
  missing=$(comm -23 <(mentioning "$example") <(listed "${files[@]}"))
  [[ -z $missing ]] || fail "CONTRIBUTING.md, $kind: '$example' is also mentioned in ${missing//$'\n'/, }"
  unneeded=$(comm -13 <(mentioning "$example") <(listed "${files[@]}"))
  [[ -z $unneeded ]] || fail "CONTRIBUTING.md, $kind: '$example' is not mentioned in ${unneeded//$'\n'/, }"
done < <(rows)
((count >= 8)) || fail "CONTRIBUTING.md has only $count rows about additions"

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r --parents "${searched[@]}" docs/evaluation.md tests/unit/metrics tests/support CONTRIBUTING.md "$copy"
cd "$copy"
read -ra files <<<"$(rows | sed -n 's/^a metric\t[^\t]*\t//p')"
for file in "${files[@]}"; do change "$file"; done
[[ $(mentioning "$metric") == $(listed "${files[@]}") ]] || fail "another file mentions $metric"

# One unit of the files of the module that do without LibTorch.
grep -LE '<(torch|ATen)/' src/metrics/*.cpp src/metrics/numbers/*.cpp | sed 's/.*/#include "&"/' >unit.cpp
folders=(-I. -Iinclude -Isrc -Itests -Itests/unit/metrics)
"$compiler" -std=c++20 -O0 "${folders[@]}" unit.cpp tests/unit/metrics/meters_test.cpp "$core" "$gtest_main" "$gtest" \
  -pthread -o unit
./unit
./unit --gtest_filter='MeanTargetTest.*' | grep -q 'PASSED.*1 test' || fail "the test of the new metric did not run"
