// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/fourier.hpp"

#include <numbers>

namespace lockstep::metrics {

namespace {

using Complex = std::complex<double>;

std::size_t smallest_factor(std::size_t n) {
  for (std::size_t factor = 2; factor * factor <= n; ++factor) {
    if (n % factor == 0) return factor;
  }
  return n;
}

/// Transforms one line of points by the method of Cooley and Tukey, for any prime factors.
class LineTransform {
 public:
  explicit LineTransform(std::size_t size) : roots_(size) {
    for (std::size_t i = 0; i < size; ++i) {
      roots_[i] = std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(size));
    }
  }

  /// @param in   `size` values, `step` elements apart
  /// @param out  `size` values; not `in`
  void run(const Complex* in, std::size_t step, Complex* out) const { part(in, step, out, roots_.size()); }

 private:
  void part(const Complex* in, std::size_t step, Complex* out, std::size_t size) const {
    if (size == 1) {
      *out = *in;
      return;
    }
    const std::size_t factor = smallest_factor(size);
    const std::size_t length = size / factor;
    for (std::size_t r = 0; r < factor; ++r) part(in + r * step, step * factor, out + r * length, length);
    const std::size_t root_step = roots_.size() / size;
    std::vector<Complex> terms(factor);
    for (std::size_t k = 0; k < length; ++k) {
      for (std::size_t r = 0; r < factor; ++r) terms[r] = out[r * length + k];
      for (std::size_t q = 0; q < factor; ++q) {
        Complex sum = terms[0];
        const std::size_t turn = (k + q * length) * root_step;
        for (std::size_t r = 1; r < factor; ++r) sum += terms[r] * roots_[r * turn % roots_.size()];
        out[q * length + k] = sum;
      }
    }
  }

  std::vector<Complex> roots_;
};

}  // namespace

std::vector<Complex> fourier_transform(std::span<const double> values, std::span<const std::size_t> shape) {
  std::vector<Complex> all(values.begin(), values.end());
  std::size_t stride = all.size();
  for (const std::size_t size : shape) {
    stride /= size;
    const LineTransform transform(size);
    std::vector<Complex> line(size);
    for (std::size_t begin = 0; begin < all.size(); ++begin) {
      if (begin / stride % size != 0) continue;
      transform.run(all.data() + begin, stride, line.data());
      for (std::size_t i = 0; i < size; ++i) all[begin + i * stride] = line[i];
    }
  }
  return all;
}

double wave_number(std::size_t index, std::size_t size) {
  const auto wave = static_cast<double>(index);
  return index < (size + 1) / 2 ? wave : wave - static_cast<double>(size);
}

}  // namespace lockstep::metrics
