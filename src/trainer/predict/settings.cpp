// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/predict/settings.hpp"

#include <lockstep/core/error.hpp>

namespace lockstep::trainer {

KeySpecs PredictSettings::keys() {
  return keys::titled(
      "Output of `trainer predict`",
      {
          keys::text(
              "predict.out", "",
              "Output file of `trainer predict`: .jsonl = one line of JSON per sample, .csv = a table, .npy = one "
              "array of probabilities, values or masks, .nc and .h5 = the variables of data.name=fields as netCDF-4, "
              "which is also HDF5"),
          keys::choice(
              "predict.split", "auto",
              "Split of the data that is predicted. auto = that of eval.split; all images if data.path is set for "
              "the prediction and is not divided into splits",
              {"auto", "train", "val", "test"}),
          keys::choice("predict.output", "predictions",
                       "Content of the output: predictions, or the pooled features before the head of the model (.npy)",
                       {"predictions", "features"}),
          keys::integer("predict.rollout", "0",
                        "Forward passes of a rollout of fields, in which predictions become inputs; all steps are "
                        "written. 0 = one pass without a rollout",
                        0, 1 << 20),
          keys::integer("predict.top_k", "5", "Number of classes per sample, in the order of their probabilities", 1,
                        1 << 24),
          keys::boolean("predict.probabilities", "false",
                        "Also write the probabilities of all classes, in their order"),
          keys::real("predict.threshold", "0.5", "Multi-label: minimum probability of a predicted label", 0, 1),
          keys::text(
              "predict.masks", "",
              "Segmentation: new folder for the masks, one gray PNG file per sample with class numbers as pixels"),
          keys::text("predict.html", "", "Page with pictures and predictions of some samples, as an .html file"),
          keys::integer("predict.html_samples", "64", "Maximum number of samples on the page of predict.html", 1,
                        10000),
          keys::choice("predict.html_order", "errors",
                       "Samples on the page of predict.html: errors = largest errors first, or without targets largest "
                       "uncertainty "
                       "first; uncertain = largest uncertainty first; first = the first samples",
                       {"errors", "uncertain", "first"}),
      });
}

PredictSettings PredictSettings::from(const Section& predict) {
  const std::string& order = predict.text("html_order");
  PredictSettings settings{.out = cited_text(predict, "out"),
                           .split = cited_text(predict, "split"),
                           .wants_features = predict.text("output") == "features",
                           .rollout = {predict.integer("rollout"), predict.cite("rollout")},
                           .top_k = predict.integer("top_k"),
                           .has_probabilities = predict.boolean("probabilities"),
                           .threshold = predict.real("threshold"),
                           .masks = cited_text(predict, "masks"),
                           .page = cited_text(predict, "html"),
                           .page_samples = predict.integer("html_samples"),
                           .page_order = order == "errors"      ? PageOrder::errors
                                         : order == "uncertain" ? PageOrder::uncertain
                                                                : PageOrder::first};
  if (!settings.page.value.empty() && !settings.page.value.ends_with(".html")) {
    throw ConfigError(settings.page.cite + ": '" + settings.page.value + "' must end in .html");
  }
  return settings;
}

PredictionForm form_of(const Cited<std::string>& out) {
  if (out.value.ends_with(".jsonl")) return PredictionForm::json_lines;
  if (out.value.ends_with(".csv")) return PredictionForm::csv;
  if (out.value.ends_with(".npy")) return PredictionForm::npy;
  if (out.value.ends_with(".nc") || out.value.ends_with(".h5")) return PredictionForm::netcdf;
  throw ConfigError(out.cite + ": '" + out.value + "' must end in .jsonl, .csv, .npy, .nc or .h5");
}

}  // namespace lockstep::trainer
