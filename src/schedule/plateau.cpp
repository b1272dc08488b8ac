// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <cmath>
#include <limits>

#include "core/text/better.hpp"
#include "schedule/curves.hpp"

namespace lockstep::schedule {

namespace {

class Plateau : public Feedback {
 public:
  Plateau(const Section& rule, Window window)
      : window_(window),
        metric_(rule.text("metric")),
        better_(chosen_better(metric_, rule.text("better"), "metric", "better")),
        measure_(rule.text("measure")),
        threshold_(rule.real("threshold")),
        factor_(rule.real("factor")),
        patience_(rule.real("patience")),
        cooldown_(rule.real("cooldown")),
        floor_(rule.real("floor")),
        eps_(rule.real("eps")) {
    if (factor_ >= 1) throw ConfigError("factor: must be less than 1");
    best_ =
        better_ == Better::lower ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  }

  void observe(double position, const Numbers& measured) override {
    if (position < window_.begin || position >= window_.end) return;
    const auto found = measured.find(metric_);
    if (found == measured.end()) {
      throw ConfigError("sched.rule: plateau: metric: no value named '" + metric_ + "' is measured" +
                        (measured.empty() ? "" : "; choose one of: " + joined_names(measured)));
    }
    if (is_better(found->second)) {
      best_ = found->second;
      bad_ = 0;
    } else {
      ++bad_;
    }
    if (cooling_ > 0) {
      --cooling_;
      bad_ = 0;
    }
    if (bad_ <= patience_) return;
    ++drops_;
    cooling_ = cooldown_;
    bad_ = 0;
  }

  double value(double value) const override {
    for (double i = 0; i < drops_; ++i) {
      const double next = std::max(value * factor_, floor_);
      if (!(value - next > eps_)) break;
      value = next;
    }
    return value;
  }

  Numbers state() const override { return {{"best", best_}, {"bad", bad_}, {"cooling", cooling_}, {"drops", drops_}}; }

  void load_state(const Numbers& state) override {
    best_ = state.at("best");
    bad_ = state.at("bad");
    cooling_ = state.at("cooling");
    drops_ = state.at("drops");
  }

 private:
  /// Whether it differs by more than the threshold, which means nothing while there is no best.
  bool is_better(double measured) const {
    if (std::isinf(best_)) return better_ == Better::lower ? measured < best_ : measured > best_;
    double margin = threshold_;
    if (measure_ == "relative") margin *= std::abs(best_);
    if (measure_ == "product") margin *= best_;
    return better_ == Better::lower ? measured < best_ - margin : measured > best_ + margin;
  }

  Window window_;
  std::string metric_;
  Better better_;
  std::string measure_;
  double threshold_;
  double factor_;
  double patience_;
  double cooldown_;
  double floor_;
  double eps_;
  double best_;
  double bad_ = 0;      // measurements since the best
  double cooling_ = 0;  // measurements until they count again
  double drops_ = 0;
};

std::unique_ptr<Feedback> make_plateau(const Section& rule, Window window) {
  return std::make_unique<Plateau>(rule, window);
}

}  // namespace

Curve plateau_curve() {
  return {
      .name = "plateau",
      .help = "Multiplication by factor when a metric has not improved for patience evaluations",
      .keys = {keys::renamed(keys::text("metric", "val/loss", "Name of an evaluation metric"), "monitor"),
               better_key("better", "better"), factor_key("factor", "0.1", "Factor of each drop, below 1"),
               keys::real("patience", "10", "Number of evaluations without improvement before a drop", 0),
               keys::real("threshold", "1e-4", "Minimum change that counts as an improvement", 0),
               choice_key("measure", {"relative", "absolute", "product"},
                          "Meaning of threshold: relative to the magnitude of the best value, absolute, or "
                          "relative to the best value with its sign"),
               keys::real("cooldown", "0", "Number of evaluations after a drop that are not counted", 0),
               keys::real("floor", "0", "Minimum value", 0), keys::real("eps", "1e-8", "Minimum size of a drop", 0)},
      .make = nullptr,
      .make_feedback = make_plateau};
}

}  // namespace lockstep::schedule
