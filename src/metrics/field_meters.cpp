// SPDX-License-Identifier: BSD-3-Clause
// Meters of fields [N, C, space...]. The numbers of each sample are computed by themselves, and then added without
// rounding.
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "core/numbers/latitudes.hpp"
#include "metrics/field_samples.hpp"
#include "metrics/meter_rows.hpp"
#include "metrics/numbers/fields.hpp"
#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

namespace {

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

/// The weights of a pair, with 0 where its prediction has no value. Empty = it has all.
std::vector<double> weights_where_known(const ChannelPair& pair) {
  const auto is_gap = [](double value) { return std::isnan(value); };
  if (std::ranges::none_of(pair.prediction, is_gap)) return {};
  std::vector<double> weights(pair.weights.begin(), pair.weights.end());
  if (weights.empty()) weights.assign(pair.prediction.size(), 1);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (is_gap(pair.prediction[i])) weights[i] = 0;
  }
  return weights;
}

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

/// Points that the newest input does not know count as little as those of gaps in the targets.
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
              const std::vector<double> weights = weights_where_known(pair);
              if (!weights.empty()) pair.weights = weights;
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
