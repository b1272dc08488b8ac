// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/text/text.hpp"
#include "schedule/curves.hpp"

namespace lockstep::schedule {

namespace {

struct CurvePart {
  double begin;  // start, as a part of the window
  double length;
  double offset;  // the inner position is offset + scale * (how far through the window)
  double scale;
  CurveShape shape;
};

/// The text that stands in one pair of parentheses around everything, or everything.
std::string without_parentheses(const std::string& text) {
  const bool is_wrapped = text.size() > 1 && text.front() == '(' && text.back() == ')';
  return is_wrapped ? text.substr(1, text.size() - 2) : text;
}

std::vector<double> lengths_of(const Section& rule, std::size_t curves) {
  std::vector<double> lengths = rule.reals("lengths");
  if (lengths.size() != curves) {
    throw ConfigError("lengths: set one per curve; there are " + std::to_string(curves) + " curves");
  }
  const double sum = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  if (std::abs(sum - 1.0) >= 1e-3) throw ConfigError("lengths: their sum must be 1");
  lengths.back() = std::max(0.0, lengths.back() + 1.0 - sum);
  return lengths;
}

CurvePart part_of(const std::string& curve, const std::string& scaling, CurvePart part, const Window& window) {
  Window inner{.begin = 0, .end = 1, .curves = window.curves};
  if (scaling == "fixed") {
    part.offset = 0;
    part.scale = 1;
  } else if (scaling == "rescaled") {
    if (part.length <= 0) throw ConfigError("lengths: a rescaled curve needs a length above 0");
    part.offset = -part.begin / part.length;
    part.scale = 1 / part.length;
  } else if (scaling == "shifted") {
    inner.end = part.length * window.width();
    part.offset = -part.begin * window.width();
    part.scale = window.width();
  } else {
    throw ConfigError("scaling: '" + scaling + "' is unknown; choose one of: rescaled, fixed, shifted");
  }
  part.shape = parse_inner(curve, inner);
  return part;
}

std::vector<CurvePart> parts_of(const Section& rule, const Window& window) {
  const std::vector<std::string> curves = split_list(without_parentheses(rule.text("curves")), '|');
  if (curves.front().empty()) throw ConfigError("curves: set at least one, as in curves=(linear | cosine)");
  const std::vector<double> lengths = lengths_of(rule, curves.size());
  std::vector<std::string> scalings = split_list(rule.text("scaling"), ',');
  if (scalings.size() == 1) scalings.resize(curves.size(), scalings.front());
  if (scalings.size() != curves.size()) throw ConfigError("scaling: set one value, or one per curve");
  std::vector<CurvePart> parts;
  double begin = 0;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    parts.push_back(part_of(curves[i], scalings[i],
                            {.begin = begin, .length = lengths[i], .offset = 0, .scale = 1, .shape = {}}, window));
    begin += lengths[i];
  }
  return parts;
}

CurveShape make_composite(const Section& rule, Window window) {
  return [parts = parts_of(rule, window), window](double position, double value) {
    if (position < window.begin) return value;
    const double through = progress(window, position);
    std::size_t here = 0;  // a boundary belongs to the next part
    while (here + 1 < parts.size() && through + kSlack > parts[here + 1].begin) ++here;
    return parts[here].shape(std::max(0.0, parts[here].offset + parts[here].scale * through), value);
  };
}

}  // namespace

Curve composite_curve() {
  return {.name = "composite",
          .help = "A sequence of curves: composite,curves=(linear | cosine),lengths=0.1,0.9",
          .keys = {keys::text("curves", "",
                              "Rules in parentheses, separated by |, without the options by, smooth, of and group"),
                   keys::reals("lengths", "", "Lengths of the curves as fractions of the window; their sum is 1", 0),
                   keys::words("scaling", "rescaled",
                               "Position that each curve sees. rescaled = fraction of its own length; fixed = fraction "
                               "of the whole window; shifted = units from its own start. One value, or one per curve")},
          .make = make_composite};
}

}  // namespace lockstep::schedule
