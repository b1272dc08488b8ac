// SPDX-License-Identifier: BSD-3-Clause
// Meters of fields [N, C, space...]. The numbers of each sample are computed by themselves, and then added without
// rounding.
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "core/numbers/latitudes.hpp"
#include "metrics/meter_rows.hpp"
#include "metrics/numbers/fields.hpp"
#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

namespace {

constexpr const char* kMask = "mask";

std::vector<std::string> numbered(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

/// The channels of a task. Channels of several steps follow one another; those of one name are measured together.
struct FieldChannels {
  std::vector<std::string> names;  ///< names of the channels of one step
  std::vector<std::string> units;  ///< their units; "" = unknown
  std::size_t count = 0;           ///< number of channels of all steps

  static FieldChannels of(const Task& task) {
    FieldChannels channels{.names = task.fields.channels, .units = task.fields.units};
    if (channels.names.empty()) channels.names = numbered(task.classes);
    channels.units.resize(channels.names.size());
    channels.count = task.classes > 0 ? static_cast<std::size_t>(task.classes) : channels.names.size();
    if (channels.count > 0 && channels.count % channels.names.size() == 0) return channels;
    throw ConfigError("the targets have " + std::to_string(task.classes) + " channels, but there are names for " +
                      std::to_string(channels.names.size()) + "; set the option classes");
  }
};

/// One channel of a sample.
struct ChannelOfSample {
  std::size_t sample = 0;
  std::size_t channel = 0;  ///< number among the channels of all steps
  ChannelPair pair = {};
  std::span<const double> climatology = {};  ///< empty unless it is read
};

/// Divides samples into channels, and weighs their points.
class FieldSamples {
 public:
  /// @param meter  its name, for messages
  FieldSamples(std::string meter, const Task& task, std::optional<RowWeights> rows = {})
      : meter_(std::move(meter)), channels_(FieldChannels::of(task)), rows_(std::move(rows)) {}

  const FieldChannels& channels() const noexcept { return channels_; }
  /// The place of a channel's name.
  std::size_t name_of(std::size_t channel) const { return channel % channels_.names.size(); }

  /// @param climatology  a name in Reads::fields; empty = none
  /// @throws DataError  the samples have other channels or rows
  void for_each(const Samples& samples, const std::function<void(const ChannelOfSample&)>& visit,
                const std::string& climatology = {}) const {
    if (samples.size() == 0) return;
    require_fit(samples);
    const std::size_t points = samples.target_columns / channels_.count;
    const std::vector<double> area = area_of(samples);
    const auto mask = samples.fields.find(kMask);
    std::vector<double> weights;
    for (std::size_t sample = 0; sample < samples.size(); ++sample) {
      for (std::size_t channel = 0; channel < channels_.count; ++channel) {
        const std::size_t begin = sample * samples.target_columns + channel * points;
        const auto part = [&](const std::vector<double>& all) { return std::span(all).subspan(begin, points); };
        weights = area;
        if (mask != samples.fields.end()) add_mask(part(mask->second), weights);
        visit({.sample = sample,
               .channel = channel,
               .pair = {.prediction = part(samples.outputs), .target = part(samples.targets), .weights = weights},
               .climatology = climatology.empty() ? std::span<const double>() : part(samples.fields.at(climatology))});
      }
    }
  }

 private:
  static void add_mask(std::span<const double> mask, std::vector<double>& weights) {
    if (weights.empty()) weights.assign(mask.size(), 1);
    for (std::size_t i = 0; i < mask.size(); ++i) weights[i] = mask[i] == 0 ? 0 : weights[i];
  }

  void require_fit(const Samples& samples) const {
    const auto channels = samples.shape.empty() ? samples.target_columns : static_cast<std::size_t>(samples.shape[0]);
    if (channels == channels_.count && samples.output_columns == samples.target_columns) return;
    throw DataError(meter_ + " needs outputs and targets [N, " + std::to_string(channels_.count) +
                    ", space...], not samples with " + std::to_string(samples.output_columns) + " outputs and " +
                    std::to_string(samples.target_columns) + " targets in " + std::to_string(channels) + " channels");
  }

  /// The weight of each point of a channel; empty = 1 for all.
  std::vector<double> area_of(const Samples& samples) const {
    if (!rows_) return {};
    const std::size_t dim = rows_->axis + 1;
    const auto rows = rows_->weights.size();
    if (samples.shape.size() <= dim || static_cast<std::size_t>(samples.shape[dim]) != rows) {
      throw DataError(meter_ + ",area: the targets do not have " + std::to_string(rows) + " latitudes along axis " +
                      std::to_string(rows_->axis) + " of space; use area=false");
    }
    std::size_t stride = 1;
    for (std::size_t i = dim + 1; i < samples.shape.size(); ++i) stride *= static_cast<std::size_t>(samples.shape[i]);
    std::vector<double> area(samples.target_columns / channels_.count);
    for (std::size_t i = 0; i < area.size(); ++i) area[i] = rows_->weights[i / stride % rows];
    return area;
  }

  std::string meter_;
  FieldChannels channels_;
  std::optional<RowWeights> rows_;
};

/// The sums and maxima of a meter; maxima are of numbers >= 0.
struct FieldTotals {
  std::vector<ExactSum> sums;
  std::vector<double> maxima;

  void add_max(std::size_t i, double value) {
    if (std::isnan(value) || value > maxima[i]) maxima[i] = std::abs(value);
  }
};

/// A meter of sums and maxima. The bits of doubles >= 0 are in the order of their values, and those of NaN are larger.
Meter meter_of_totals(std::vector<Result> results, std::size_t sums, std::size_t maxima,
                      std::function<void(const Samples&, FieldTotals&)> add,
                      std::function<std::vector<double>(const FieldTotals&)> read) {
  const auto loaded = [sums, maxima](std::span<const std::int64_t> words) {
    FieldTotals totals;
    for (std::size_t i = 0; i < sums; ++i)
      totals.sums.emplace_back(words.subspan(i * ExactSum::kWords, ExactSum::kWords));
    for (const std::int64_t word : words.last(maxima)) totals.maxima.push_back(std::bit_cast<double>(word));
    return totals;
  };
  return {.results = std::move(results),
          .words = sums * ExactSum::kWords + maxima,
          .maxima = maxima,
          .add =
              [loaded, maxima, add = std::move(add)](const Samples& samples, std::span<std::int64_t> words) {
                FieldTotals totals = loaded(words);
                add(samples, totals);
                for (std::size_t i = 0; i < totals.sums.size(); ++i) {
                  totals.sums[i].store(words.subspan(i * ExactSum::kWords, ExactSum::kWords));
                }
                std::ranges::transform(totals.maxima, words.last(maxima).begin(),
                                       [](double value) { return std::bit_cast<std::int64_t>(value); });
              },
          .read = [loaded, read = std::move(read)](
                      std::span<const std::int64_t> words) { return Reading{.numbers = read(loaded(words))}; }};
}

/// "rmse/z500", or "rmse@3/z500" for the channel z500@3 of a later step.
std::string result_name(const std::string& number, const std::string& channel) {
  const std::size_t sign = channel.rfind('@');
  const bool has_step = sign != std::string::npos && sign + 1 < channel.size() &&
                        channel.find_first_not_of("0123456789", sign + 1) == std::string::npos;
  return has_step ? number + channel.substr(sign) + "/" + channel.substr(0, sign) : number + "/" + channel;
}

/// Results named NUMBER/CHANNEL without a unit, one number after the other.
std::vector<Result> results_of_channels(const std::vector<std::string>& numbers, const FieldChannels& channels,
                                        bool is_higher_better = false) {
  std::vector<Result> results;
  for (const std::string& number : numbers) {
    for (const std::string& name : channels.names) results.push_back({result_name(number, name), is_higher_better});
  }
  return results;
}

/// The same of errors, which have the units of their channels.
std::vector<Result> errors_of_channels(const std::vector<std::string>& numbers, const FieldChannels& channels) {
  std::vector<Result> results = results_of_channels(numbers, channels);
  for (std::size_t i = 0; i < results.size(); ++i) results[i].unit = channels.units[i % channels.units.size()];
  return results;
}

/// Results of all channels together, and then those of each.
std::vector<Result> with_channels(const std::vector<std::string>& numbers,
                                  const std::vector<std::vector<Result>>& of_channels) {
  std::vector<Result> results;
  for (const std::string& number : numbers) results.push_back({number, false});
  for (const std::vector<Result>& each : of_channels) results.insert(results.end(), each.begin(), each.end());
  return results;
}

/// Means of numbers over samples, by channel: a count and the sum of each number, one channel name after the other.
class ChannelMeans {
 public:
  ChannelMeans(std::size_t names, std::size_t numbers) : names_(names), numbers_(numbers) {}

  std::size_t sums() const noexcept { return names_ * (numbers_ + 1); }

  void add(FieldTotals& totals, std::size_t name, std::span<const double> numbers) const {
    ExactSum* const sums = &totals.sums[name * (numbers_ + 1)];
    sums[0].add(1);
    for (std::size_t i = 0; i < numbers.size(); ++i) sums[1 + i].add(numbers[i]);
  }

  double mean(const FieldTotals& totals, std::size_t name, std::size_t number) const {
    return mean_over(totals, name, name + 1, number);
  }
  double mean(const FieldTotals& totals, std::size_t number) const { return mean_over(totals, 0, names_, number); }

 private:
  double mean_over(const FieldTotals& totals, std::size_t begin, std::size_t end, std::size_t number) const {
    ExactSum count;
    ExactSum sum;
    for (std::size_t name = begin; name < end; ++name) {
      count.add(totals.sums[name * (numbers_ + 1)].value());
      const ExactSum::Pair part = totals.sums[name * (numbers_ + 1) + 1 + number].pair();
      sum.add(part.high);
      sum.add(part.low);
    }
    return count.value() == 0 ? kNan : sum.value() / count.value();
  }

  std::size_t names_;
  std::size_t numbers_;
};

Reads reads_mask() { return {.optional_fields = {kMask}}; }

/// @throws DataError  a point of the channel does not count
void require_no_gaps(const ChannelPair& pair, const std::string& meter) {
  if (!pair.has_gaps()) return;
  throw DataError(meter + " needs fields without gaps, but the value mask of the batch has zeros; use field or well");
}

std::vector<std::size_t> space_of(const Task& task, const std::string& meter) {
  std::vector<std::size_t> space;
  for (std::size_t i = 1; i < task.sample_shape.size(); ++i) {
    space.push_back(static_cast<std::size_t>(task.sample_shape[i]));
  }
  if (!space.empty() && space.size() <= 3) return space;
  throw ConfigError(meter + " needs samples [C, space...] with 1 to 3 axes of space; the samples of the task have " +
                    std::to_string(task.sample_shape.size()) + " dimensions");
}

/// @throws DataError  the targets have another space than the samples of the task
void require_space(const Samples& samples, const std::vector<std::size_t>& space, const std::string& meter) {
  if (samples.size() == 0) return;
  std::vector<std::size_t> sizes;
  for (std::size_t i = 1; i < samples.shape.size(); ++i) sizes.push_back(static_cast<std::size_t>(samples.shape[i]));
  if (sizes != space) {
    throw DataError(meter + " needs targets with the axes of space of the inputs; choose another metric");
  }
}

/// The mean of a number over channels.
template <class Number>
double mean_of_channels(std::size_t channels, const Number& number) {
  double sum = 0;
  for (std::size_t channel = 0; channel < channels; ++channel) sum += number(channel);
  return sum / static_cast<double>(channels);
}

/// The sums of PDEBench's numbers over samples, of each channel of each step.
class PdeTotals {
 public:
  explicit PdeTotals(const Task& task)
      : fields_("pdebench", task), space_(space_of(task, "pdebench")), bins_(pde_bins(space_)) {}

  const FieldChannels& channels() const noexcept { return fields_.channels(); }
  std::size_t sums() const noexcept { return channels().count * sums_of_channel(); }

  void add(const Samples& samples, FieldTotals& totals) const {
    require_space(samples, space_, "pdebench");
    fields_.for_each(samples, [&](const ChannelOfSample& one) {
      require_no_gaps(one.pair, "pdebench");
      const PdeErrors errors = pde_errors(one.pair, space_);
      ExactSum* const sums = &totals.sums[one.channel * sums_of_channel()];
      sums[kCount].add(1);
      sums[kRmse].add(errors.rmse);
      sums[kNrmse].add(errors.nrmse);
      sums[kConserved].add_product(errors.mean, errors.mean);
      sums[kBoundary].add(errors.boundary);
      for (std::size_t bin = 0; bin < bins_; ++bin) sums[kEnergies + bin].add(errors.energies[bin]);
      totals.add_max(one.channel, errors.max);
    });
  }

  std::vector<double> read(const FieldTotals& totals) const {
    const auto mean = [&](std::size_t sum) { return [&, sum](std::size_t c) { return mean_of(totals, c, sum); }; };
    const auto conserved = [&](std::size_t c) { return std::sqrt(mean_of(totals, c, kConserved)); };
    const auto largest = [&](std::size_t c) { return std::isnan(mean_of(totals, c, kRmse)) ? kNan : totals.maxima[c]; };
    const std::size_t count = channels().count;
    std::vector<double> numbers = {mean_of_channels(count, mean(kRmse)), mean_of_channels(count, mean(kNrmse)),
                                   mean_of_channels(count, conserved), mean_of_channels(count, largest),
                                   mean_of_channels(count, mean(kBoundary))};
    const std::vector<Bands> bands = bands_of(totals);
    for (std::size_t band = 0; band < kBands; ++band) {
      numbers.push_back(mean_of_channels(count, [&](std::size_t c) { return bands[c][band]; }));
    }
    const std::size_t names = channels().names.size();
    for (const std::size_t sum : {std::size_t{kRmse}, std::size_t{kNrmse}}) {
      for (std::size_t name = 0; name < names; ++name) {
        const auto of_step = [&](std::size_t step) { return mean_of(totals, step * names + name, sum); };
        numbers.push_back(mean_of_channels(count / names, of_step));
      }
    }
    return numbers;
  }

 private:
  enum Sum : std::size_t { kCount, kRmse, kNrmse, kConserved, kBoundary, kEnergies };

  std::size_t sums_of_channel() const noexcept { return kEnergies + bins_; }

  double mean_of(const FieldTotals& totals, std::size_t channel, std::size_t sum) const {
    const ExactSum* const sums = &totals.sums[channel * sums_of_channel()];
    return sums[sum].value() / sums[kCount].value();
  }

  std::vector<Bands> bands_of(const FieldTotals& totals) const {
    std::vector<Bands> bands;
    for (std::size_t channel = 0; channel < channels().count; ++channel) {
      std::vector<double> roots;
      for (std::size_t bin = 0; bin < bins_; ++bin) {
        roots.push_back(std::sqrt(mean_of(totals, channel, kEnergies + bin)));
      }
      bands.push_back(pde_bands(roots));
    }
    return bands;
  }

  FieldSamples fields_;
  std::vector<std::size_t> space_;
  std::size_t bins_;
};

}  // namespace

Meter field_meter(const Section& options, const Task& task) {
  enum Sum : std::size_t { kWeight, kSquared, kAbsolute, kError, kSums };
  const FieldSamples fields("field", task, row_weights(options.text("area"), task.fields, "area"));
  const std::size_t names = fields.channels().names.size();
  Meter meter = meter_of_totals(
      errors_of_channels({"rmse", "mae", "max", "bias"}, fields.channels()), names * kSums, names,
      [fields](const Samples& samples, FieldTotals& totals) {
        fields.for_each(samples, [&](const ChannelOfSample& one) {
          const std::size_t name = fields.name_of(one.channel);
          const FieldSums sums = field_sums(one.pair);
          ExactSum* const totals_of_name = &totals.sums[name * kSums];
          totals_of_name[kWeight].add(sums.weight);
          totals_of_name[kSquared].add(sums.squared);
          totals_of_name[kAbsolute].add(sums.absolute);
          totals_of_name[kError].add(sums.error);
          totals.add_max(name, sums.max);
        });
      },
      [names](const FieldTotals& totals) {
        std::vector<double> numbers;
        const auto mean = [&](std::size_t name, Sum sum) {
          return totals.sums[name * kSums + sum].value() / totals.sums[name * kSums + kWeight].value();
        };
        for (std::size_t i = 0; i < names; ++i) numbers.push_back(std::sqrt(mean(i, kSquared)));
        for (std::size_t i = 0; i < names; ++i) numbers.push_back(mean(i, kAbsolute));
        for (std::size_t i = 0; i < names; ++i) {
          numbers.push_back(totals.sums[i * kSums + kWeight].value() == 0 ? kNan : totals.maxima[i]);
        }
        for (std::size_t i = 0; i < names; ++i) numbers.push_back(mean(i, kError));
        return numbers;
      });
  meter.reads = reads_mask();
  return meter;
}

Meter persistence_meter(const Section& options, const Task& task) {
  const std::string values = "persistence";
  const FieldSamples fields(values, task, row_weights(options.text("area"), task.fields, "area"));
  const std::size_t names = fields.channels().names.size();
  Meter meter = meter_of_totals(
      errors_of_channels({"persistence_rmse"}, fields.channels()), names * 2, 0,
      [fields, values](const Samples& samples, FieldTotals& totals) {
        fields.for_each(
            samples,
            [&](const ChannelOfSample& one) {
              ChannelPair pair = one.pair;
              pair.prediction = one.climatology;
              const FieldSums sums = field_sums(pair);
              ExactSum* const totals_of_name = &totals.sums[fields.name_of(one.channel) * 2];
              totals_of_name[0].add(sums.weight);
              totals_of_name[1].add(sums.squared);
            },
            values);
      },
      [names](const FieldTotals& totals) {
        std::vector<double> numbers;
        for (std::size_t i = 0; i < names; ++i) {
          numbers.push_back(std::sqrt(totals.sums[2 * i + 1].value() / totals.sums[2 * i].value()));
        }
        return numbers;
      });
  meter.reads = {.fields = {values}, .optional_fields = {kMask}};
  return meter;
}

Meter well_meter(const Section& /*options*/, const Task& task) {
  constexpr std::size_t kNumbers = 7;
  const FieldSamples fields("well", task);
  const std::size_t names = fields.channels().names.size();
  const ChannelMeans means(names, kNumbers);
  Meter meter = meter_of_totals(
      with_channels({"nrmse", "vrmse", "nmse", "vmse", "nmae", "linfinity", "pearson_r"},
                    {results_of_channels({"nrmse", "vrmse"}, fields.channels())}),
      means.sums(), 0,
      [fields, means](const Samples& samples, FieldTotals& totals) {
        fields.for_each(samples, [&](const ChannelOfSample& one) {
          if (field_sums(one.pair).weight == 0) return;  // nothing but gaps
          const WellErrors e = well_errors(one.pair);
          const std::array<double, kNumbers> numbers = {e.nrmse(), e.vrmse(),   e.nmse,   e.vmse,
                                                        e.nmae,    e.linfinity, e.pearson};
          means.add(totals, fields.name_of(one.channel), numbers);
        });
      },
      [means, names](const FieldTotals& totals) {
        std::vector<double> numbers;
        for (std::size_t i = 0; i < kNumbers; ++i) numbers.push_back(means.mean(totals, i));
        for (std::size_t i = 0; i < 2; ++i) {  // nrmse and vrmse
          for (std::size_t name = 0; name < names; ++name) numbers.push_back(means.mean(totals, name, i));
        }
        return numbers;
      });
  meter.results[kNumbers - 1].is_higher_better = true;
  meter.reads = reads_mask();
  return meter;
}

Meter spectral_meter(const Section& /*options*/, const Task& task) {
  constexpr double kEpsilon = 1e-7;
  const FieldSamples fields("spectral", task);
  const std::vector<std::size_t> space = space_of(task, "spectral");
  const ChannelMeans means(1, 2 * kBands);
  Meter meter = meter_of_totals(
      with_channels({"spectral_mse/low", "spectral_mse/mid", "spectral_mse/high", "spectral_nmse/low",
                     "spectral_nmse/mid", "spectral_nmse/high"},
                    {}),
      means.sums(), 0,
      [fields, means, space, bands = SpectralBands(space)](const Samples& samples, FieldTotals& totals) {
        require_space(samples, space, "spectral");
        fields.for_each(samples, [&](const ChannelOfSample& one) {
          require_no_gaps(one.pair, "spectral");
          const Bands errors = bands.energies(errors_of(one.pair));
          const Bands targets = bands.energies(one.pair.target);
          std::array<double, 2 * kBands> numbers = {};
          for (std::size_t band = 0; band < kBands; ++band) {
            numbers[band] = errors[band];
            numbers[kBands + band] = errors[band] / (targets[band] + kEpsilon);
          }
          means.add(totals, 0, numbers);
        });
      },
      [means](const FieldTotals& totals) {
        std::vector<double> numbers;
        for (std::size_t i = 0; i < 2 * kBands; ++i) numbers.push_back(means.mean(totals, i));
        return numbers;
      });
  meter.reads = reads_mask();
  return meter;
}

Meter pdebench_meter(const Section& /*options*/, const Task& task) {
  const PdeTotals pde(task);
  Meter meter = meter_of_totals(
      with_channels({"pdebench_rmse", "pdebench_nrmse", "pdebench_conserved", "pdebench_max", "pdebench_boundary",
                     "pdebench_fourier/low", "pdebench_fourier/mid", "pdebench_fourier/high"},
                    {errors_of_channels({"pdebench_rmse"}, pde.channels()),
                     results_of_channels({"pdebench_nrmse"}, pde.channels())}),
      pde.sums(), pde.channels().count,
      [pde](const Samples& samples, FieldTotals& totals) { pde.add(samples, totals); },
      [pde](const FieldTotals& totals) { return pde.read(totals); });
  meter.reads = reads_mask();
  return meter;
}

Meter acc_meter(const Section& options, const Task& task) {
  const FieldSamples fields("acc", task, row_weights(options.text("area"), task.fields, "area"));
  const std::size_t names = fields.channels().names.size();
  const ChannelMeans means(names, 1);
  const std::string climatology = options.text("climatology");
  if (climatology.empty()) throw ConfigError("climatology: the name of a batch value is missing");
  Meter meter = meter_of_totals(
      results_of_channels({"acc"}, fields.channels(), /*is_higher_better=*/true), means.sums(), 0,
      [fields, means, climatology, is_centered = options.boolean("centered")](const Samples& samples,
                                                                              FieldTotals& totals) {
        fields.for_each(
            samples,
            [&](const ChannelOfSample& one) {
              if (field_sums(one.pair).weight == 0) return;  // nothing but gaps
              const double correlation = anomaly_correlation(one.pair, one.climatology, is_centered);
              means.add(totals, fields.name_of(one.channel), std::span(&correlation, 1));
            },
            climatology);
      },
      [means, names](const FieldTotals& totals) {
        std::vector<double> numbers;
        for (std::size_t name = 0; name < names; ++name) numbers.push_back(means.mean(totals, name, 0));
        return numbers;
      });
  meter.reads = {.fields = {climatology}, .optional_fields = {kMask}};
  return meter;
}

}  // namespace lockstep::metrics
