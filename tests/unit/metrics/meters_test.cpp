// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/meters.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "make_samples.hpp"
#include "support/sentence.hpp"

namespace lockstep::metrics {
namespace meters_test {

constexpr std::int64_t kClasses = 3;
constexpr std::size_t kPoints = 4;
const Task kTask = {.sample_shape = {kClasses, kPoints}, .classes = kClasses};

/// Samples with everything that some meter needs, made by `target` from the number of the sample.
Samples samples_with(std::size_t columns, const std::function<std::vector<double>(std::size_t)>& target) {
  std::mt19937 random(11);
  Rows outputs;
  Rows targets;
  for (std::size_t i = 0; i < 37; ++i) {
    std::vector<double> output(columns);
    // Numbers of very different size, so that the order of a plain sum shows. Between 0 and 1, since some want
    // probabilities.
    for (double& value : output) value = std::ldexp(static_cast<double>(random() >> 8), -24 - static_cast<int>(i % 20));
    outputs.push_back(output);
    targets.push_back(target(i));
  }
  return make_samples(outputs, targets);
}

/// Fields of kClasses channels of kPoints points, with a mask and a climatology.
Samples field_samples() {
  const auto wave = [](std::size_t i, std::size_t j) {
    return std::ldexp(std::sin(static_cast<double>(7 * i + j)), static_cast<int>(i % 20));
  };
  Samples samples = samples_with(kClasses * kPoints, [&](std::size_t i) {
    std::vector<double> target;
    for (std::size_t j = 0; j < kClasses * kPoints; ++j) target.push_back(wave(i, j));
    return target;
  });
  samples.shape = kTask.sample_shape;
  samples.fields["mask"].assign(samples.targets.size(), 1);
  for (std::size_t i = 0; i < samples.targets.size(); ++i) {
    samples.fields["climatology"].push_back(wave(i, 1) / 3);
    samples.fields["persistence"].push_back(wave(i, 1) / 2);
  }
  return samples;
}

/// The samples that each row is tried with.
Samples samples_for(const std::string& row) {
  const auto digit = [](std::size_t i, std::size_t n) { return static_cast<double>(i * i / 3 % n); };
  if (row == "multilabel" || row == "probability") {
    return samples_with(3, [&](std::size_t i) { return std::vector{digit(i, 2), digit(i + 1, 2), digit(i + 2, 2)}; });
  }
  if (row.starts_with("regression")) {
    return samples_with(3, [&](std::size_t i) {
      return std::vector{digit(i, 7) / 10, 1e8 + digit(i, 5), -digit(i, 3)};
    });
  }
  if (row == "acc" || row == "field" || row == "pdebench" || row == "persistence" || row == "spectral" ||
      row == "well") {
    return field_samples();
  }
  if (row == "reidentification") {
    return samples_with(4, [&](std::size_t i) {
      return std::vector{digit(i, 4), digit(i, 3), i % 5 == 0 ? 1.0 : 0.0};
    });
  }
  return samples_with(3, [&](std::size_t i) { return std::vector{i % 9 == 4 ? -100 : digit(i, 3)}; });
}

Samples part_of(const Samples& all, std::size_t begin, std::size_t end) {
  Samples part;
  for (std::size_t i = begin; i < end; ++i) {
    const auto output = all.output(i);
    const auto target = all.target(i);
    append(part, {.indices = {all.indices[i]},
                  .outputs = {output.begin(), output.end()},
                  .targets = {target.begin(), target.end()},
                  .output_columns = all.output_columns,
                  .target_columns = all.target_columns});
    for (const auto& [name, values] : all.fields) {
      const auto values_of_sample = values.begin() + static_cast<std::ptrdiff_t>(i * all.target_columns);
      part.fields[name].insert(part.fields[name].end(), values_of_sample,
                               values_of_sample + static_cast<std::ptrdiff_t>(all.target_columns));
    }
  }
  part.shape = all.shape;
  return part;
}

Meters one_meter(const std::string& text) {
  std::vector<Meter> meters;
  meters.push_back(make_meter(text, kTask, "test"));
  return Meters(std::move(meters));
}

std::string default_text(const std::string& row) { return row == "top_k" ? "top_k,k=2" : row; }

/// Every number and every element of every table, to the bit.
std::vector<std::uint64_t> bits_of(const Meters& meters) {
  std::vector<std::uint64_t> bits;
  const Meters::Readings readings = meters.read();
  for (const auto& [name, value] : readings.numbers) bits.push_back(std::bit_cast<std::uint64_t>(value));
  for (const Table& table : readings.tables) {
    for (const double value : table.values) bits.push_back(std::bit_cast<std::uint64_t>(value));
  }
  return bits;
}

/// The work that evaluation does over ranks, each of which counts its part batch by batch.
Meters gathered(const std::string& text, const Samples& all, std::size_t ranks, std::size_t batch) {
  Meters whole = one_meter(text);
  std::vector<std::vector<std::byte>> packed;
  std::vector<std::int64_t> maxima = whole.take_maxima();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Meters mine = one_meter(text);
    for (std::size_t begin = rank * batch; begin < all.size(); begin += ranks * batch) {
      mine.add(part_of(all, begin, std::min(begin + batch, all.size())));
    }
    const std::vector<std::int64_t> mine_maxima = mine.take_maxima();
    for (std::size_t i = 0; i < maxima.size(); ++i) maxima[i] = std::max(maxima[i], mine_maxima[i]);
    for (std::size_t i = 0; i < whole.sums().size(); ++i) whole.sums()[i] += mine.sums()[i];
    packed.push_back(mine.packed());
  }
  whole.put_maxima(maxima);
  whole.take_gathered(packed);
  return whole;
}

TEST(MetersTest, ReadingsDoNotDependOnWhoSawWhichSample) {
  for (const MeterRow& row : builtin_meters()) {
    SCOPED_TRACE(row.name);
    const std::string text = default_text(row.name);
    const Samples all = samples_for(row.name);
    Meters alone = one_meter(text);
    alone.add(all);
    const auto expected = bits_of(alone);
    const std::string finite = "some number is finite and not 0";
    EXPECT_TRUE(std::any_of(expected.begin(), expected.end(), [](std::uint64_t bits) {
      const auto value = std::bit_cast<double>(bits);
      return std::isfinite(value) && value != 0;
    })) << finite;
    for (const std::size_t ranks : {1, 2, 3, 4, 50}) {
      EXPECT_EQ(bits_of(gathered(text, all, ranks, 1)), expected) << ranks << " ranks";
      EXPECT_EQ(bits_of(gathered(text, all, ranks, 5)), expected) << ranks << " ranks, batches of 5";
    }
  }
}

TEST(MetersTest, MergingIsCountingTogether) {
  for (const MeterRow& row : builtin_meters()) {
    SCOPED_TRACE(row.name);
    const Samples all = samples_for(row.name);
    Meters whole = one_meter(default_text(row.name));
    Meters first = whole;
    Meters second = whole;
    whole.add(all);
    second.add(part_of(all, 20, all.size()));
    first.add(part_of(all, 0, 20));
    EXPECT_NE(bits_of(first), bits_of(whole));
    first.merge(second);
    EXPECT_EQ(bits_of(first), bits_of(whole));
  }
}

TEST(MetersTest, AMeterReturnsOneNumberForEachResult) {
  std::vector<Meter> meters;
  meters.push_back({.results = {{"a"}, {"b"}},
                    .words = 1,
                    .add = [](const Samples&, std::span<std::int64_t>) {},
                    .read =
                        [](std::span<const std::int64_t>) {
                          return Reading{{1.0}, {}};
                        }});
  EXPECT_EQ(testing::sentence_of<ConfigError>([&] { static_cast<void>(Meters(std::move(meters)).read()); }),
            "a meter returns 1 numbers, but has 2 results, such as 'a'; correct its function `read`");
}

TEST(MetersTest, ReadingNothingDoesNotFail) {
  for (const MeterRow& row : builtin_meters()) {
    SCOPED_TRACE(row.name);
    const Meters nothing = one_meter(default_text(row.name));
    const auto numbers = nothing.read().numbers;
    EXPECT_EQ(numbers.size(), nothing.results().size());
    for (const auto& [name, value] : numbers) EXPECT_TRUE(value == 0 || std::isnan(value)) << name << ": " << value;
  }
}

TEST(MetersTest, SeveralMetersKeepTheirCountsApart) {
  std::vector<Meter> both;
  for (const char* const text : {"top_k,k=1", "auroc", "confusion", "perplexity"}) {
    both.push_back(make_meter(text, kClasses, "test"));
  }
  Meters meters(std::move(both));
  const Samples all = samples_for("confusion");
  meters.add(all);
  std::vector<std::pair<std::string, double>> expected;
  for (const char* const text : {"top_k,k=1", "auroc", "confusion", "perplexity"}) {
    Meters one = one_meter(text);
    one.add(all);
    for (const auto& number : one.read().numbers) expected.push_back(number);
  }
  EXPECT_EQ(meters.read().numbers, expected);
}

TEST(MetersTest, NamesOfAllRowsAreTheirOwn) {
  std::set<std::string> names;
  for (const MeterRow& row : builtin_meters()) {
    EXPECT_FALSE(row.help.empty() || row.needs.empty()) << row.name;
    for (const Result& result : one_meter(default_text(row.name)).results()) {
      EXPECT_TRUE(names.insert(result.name).second) << result.name;
    }
  }
}

TEST(MetersTest, SaySoWhereLessIsBetter) {
  const auto directions = [](const std::string& text) {
    std::string signs;
    for (const Result& result : one_meter(text).results()) signs += result.is_higher_better ? '+' : '-';
    return signs;
  };
  EXPECT_EQ(directions("regression"), "----+++");
  EXPECT_EQ(directions("regression_order"), "--+");
  EXPECT_EQ(directions("perplexity"), "---");
  EXPECT_EQ(directions("multilabel"), "++++-");
  EXPECT_EQ(directions("auroc"), "+++");
}

TEST(MetersTest, OptionsReachTheMeter) {
  Meters meters = one_meter("confusion,average=micro,beta=2,ignored=0");
  meters.add(samples_for("confusion"));
  const auto numbers = meters.read().numbers;
  EXPECT_EQ(numbers[2].first, "f_beta");
  EXPECT_EQ(numbers[0].second, numbers[1].second);  // micro: both are the accuracy
  const Table matrix = meters.read().tables.front();
  EXPECT_EQ(matrix.name, "confusion");
  EXPECT_EQ(matrix.columns, 3U);
  EXPECT_EQ(matrix.values[0] + matrix.values[1] + matrix.values[2], 0);  // targets of class 0
}

struct Misuse {
  std::string text;
  std::int64_t classes;
  std::string says;
};

TEST(MetersTest, WrongTextsAreRefusedInASentence) {
  const std::vector<Misuse> cases = {
      {"confusoin", 3, "did you mean 'confusion'?"},
      {"", 3, "is unknown"},
      {"top_k,k=4", 3, "k=4 of 3 classes"},
      {"top_k,k=0", 3, "k"},
      {"top_k,q=1", 3, "q"},
      {"confusion,average=mean", 3, "average"},
      {"confusion", 50000, "50000 by 50000"},
      {"overlap", 0, "0 by 0"},
  };
  for (const Misuse& one : cases) {
    try {
      make_meter(one.text, one.classes, "eval.metrics (test)");
      ADD_FAILURE() << one.text << " is not refused";
    } catch (const ConfigError& error) {
      const std::string what = error.what();
      EXPECT_TRUE(what.starts_with("eval.metrics (test)")) << what;
      EXPECT_NE(what.find(one.says), std::string::npos) << what;
    }
  }
}

// Two meters of a kind, one of which reads another output: as each would read alone, also where all samples are needed.
TEST(MetersTest, EachReadsWhatItNames) {
  for (const std::string row : {"regression", "regression_order"}) {
    SCOPED_TRACE(row);
    const Samples first = samples_for(row);
    Samples second = first;
    for (double& output : second.outputs) output += 0.5;
    const auto samples_of = [&](const Reads& reads) { return reads.output == "size" ? second : first; };
    const auto both = [&row] {
      std::vector<Meter> meters;
      meters.push_back(make_meter(row, kClasses, "test"));
      meters.push_back(make_meter(row + ",output=size,prefix=of_size", kClasses, "test"));
      return Meters(std::move(meters));
    };
    Meters meters = both();
    meters.add(samples_of);
    Meters other = both();  // filled as if gathered from ranks
    std::copy(meters.sums().begin(), meters.sums().end(), other.sums().begin());
    other.take_gathered(std::vector<std::vector<std::byte>>{meters.packed()});
    Meters alone = one_meter(row);
    Meters alone_second = one_meter(row);
    alone.add(first);
    alone_second.add(second);
    const auto numbers = other.read().numbers;
    const auto expected = alone.read().numbers;
    const auto expected_second = alone_second.read().numbers;
    ASSERT_EQ(numbers.size(), 2 * expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(numbers[i], expected[i]);
      EXPECT_EQ(numbers[expected.size() + i].first, "of_size/" + expected_second[i].first);
      EXPECT_EQ(numbers[expected.size() + i].second, expected_second[i].second);
    }
  }
}

TEST(MetersTest, ResultsHaveNamesAndANumberEach) {
  const auto make = [](const std::string& name, std::size_t numbers) {
    const auto read = [numbers](std::span<const std::int64_t>) {
      return Reading{.numbers = std::vector<double>(numbers, 0.0)};
    };
    return Meter{.results = {{name}}, .words = 1, .add = [](const Samples&, std::span<std::int64_t>) {}, .read = read};
  };
  const auto rows_with = [&](const std::string& name) {
    const Meter meter = make(name, 1);
    return std::vector<MeterRow>{{"mine", "", "", {}, [meter](const Section&, std::int64_t) { return meter; }}};
  };
  EXPECT_THROW(make_meter("mine", kClasses, "test", rows_with("")), ConfigError);
  EXPECT_EQ(make_meter("mine", kClasses, "test", rows_with("size")).results.at(0).name, "size");
  EXPECT_EQ(Meters({make("size", 1)}).read().numbers.size(), 1U);
  EXPECT_THROW(Meters({make("size", 0)}).read(), ConfigError);
  EXPECT_THROW(Meters({make("size", 2)}).read(), ConfigError);
}

TEST(MetersTest, MetersThatNeedAllSamplesCannotReadFields) {
  const auto refusal = [](const Meter& meter) {
    const std::vector<MeterRow> rows = {{"mine", "", "", {}, [meter](const Section&, std::int64_t) { return meter; }}};
    return testing::sentence_of<ConfigError>([&] { make_meter("mine", kClasses, "test", rows); });
  };
  const auto read_all = [](const Samples&) { return Reading(); };
  EXPECT_EQ(refusal({.results = {}, .read_all = read_all, .reads = {.optional_fields = {"mask"}}}),
            "test: mine: a meter that needs all samples cannot read fields; set add and read instead of read_all");
  EXPECT_EQ(refusal({.results = {}, .maxima = 1, .read_all = read_all}),
            "test: mine: the meter has more maxima than words; correct one of them");
}

TEST(MetersTest, ARowPresetsWhatItReadsAndOptionsReplaceIt) {
  const auto preset = [](const Section&, std::int64_t) {
    Meter meter = make_meter("regression", kClasses, "test");
    meter.reads = {.output = "size", .target = "weight", .values = {"name"}};
    return meter;
  };
  const auto reads = [&preset](const std::string& text) {
    return make_meter(text, kClasses, "test", {{"mine", "", "", {}, preset}}).reads;
  };
  EXPECT_EQ(reads("mine"), (Reads{.output = "size", .target = "weight", .values = {"name"}}));
  EXPECT_EQ(reads("mine,output=other"), (Reads{.output = "other", .target = "weight", .values = {"name"}}));
  EXPECT_EQ(reads("mine,target=other"), (Reads{.output = "size", .target = "other", .values = {"name"}}));
}

// Any rounding of a partial sum would lose the 1 beside 1e16, or 1e-300 beside 1.
TEST(MetersTest, SumsOfRealNumbersAreExactForEveryDivision) {
  const Samples all = make_samples({{1e16}, {1}, {1e-300}, {-1e16}, {-1}}, {{1}, {1}, {1}, {1}, {3}});
  const auto fresh = [] {
    return Meters({meter_of_sums(
        {{"sum"}, {"products"}}, 2,
        [](const Samples& samples, std::span<ExactSum> sums) {
          for (std::size_t i = 0; i < samples.size(); ++i) {
            sums[0].add(samples.outputs[i]);
            sums[1].add_product(samples.outputs[i], samples.targets[i]);
          }
        },
        [](std::span<const ExactSum> sums) {
          return Reading{{sums[0].value(), sums[1].value()}};
        })});
  };
  for (std::size_t parts = 1; parts <= all.size(); ++parts) {
    Meters whole = fresh();
    for (std::size_t part = 0; part < parts; ++part) {
      Meters mine = fresh();
      for (std::size_t i = part; i < all.size(); i += parts) mine.add(part_of(all, i, i + 1));
      whole.merge(mine);
    }
    EXPECT_EQ(whole.read().numbers[0].second, 1e-300) << parts;
    EXPECT_EQ(whole.read().numbers[1].second, -2) << parts;
  }
}

TEST(MetersTest, TwoNumbersOfOneNameAreRefused) {
  std::vector<Meter> twice;
  twice.push_back(make_meter("top_k,k=2", kClasses, "test"));
  twice.push_back(make_meter("top_k,k=2", kClasses, "test"));
  EXPECT_THROW(Meters(std::move(twice)), ConfigError);
}

}  // namespace meters_test
}  // namespace lockstep::metrics
