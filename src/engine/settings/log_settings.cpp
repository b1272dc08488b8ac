// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/log_settings.hpp"

#include <lockstep/engine/hook.hpp>

namespace lockstep::engine {

KeySpecs LogSettings::keys() {
  return keys::titled(
      "Progress lines, metrics.jsonl and the report",
      {
          keys::choice(
              "log.level", "info",
              "Lowest level of messages on the console. The files train.log and logs/rank_*.log contain all levels",
              {"debug", "info", "warning", "error"}),
          keys::renamed(keys::text("log.every", "10",
                                   "Steps (10) or epochs (1epochs) between lines of the log and of metrics.jsonl; with "
                                   "changes, such as 10 then 100@1000. The last step always has one"),
                        "log.interval"),
          keys::expert(keys::integer(
              "log.window", "1",
              "Number of latest steps over which the loss of the log and of metrics.jsonl is averaged. 1 = the "
              "loss of the step",
              1, 1e6)),
          keys::renamed(
              keys::real("log.console_s", "5",
                         "Minimum time in seconds between progress lines on the console. The files contain all lines",
                         0, 1e6),
              "log.console_secs"),
          keys::boolean("log.tensorboard", "true",
                        "Also write the values of metrics.jsonl to a TensorBoard event file in run.dir"),
          keys::integer(
              "log.pictures", "16",
              "Number of validation samples that report.html and TensorBoard show with the predictions of the "
              "model. 0 = none",
              0, 1000),
          keys::text("log.fields", "",
                     "Channels of fields that report.html shows, by their names: z500,t850. If empty, the first three"),
          keys::integer("log.field_samples", "2",
                        "Number of validation samples of fields that report.html shows. 0 = no samples, errors and "
                        "spectra",
                        0, 100),
          keys::expert(
              keys::boolean("log.sections", "false",
                            "Measure the time of each section of a step (data, forward, loss, backward, update) in ms; "
                            "train.step_kind=standard always does")),
      });
}

LogSettings LogSettings::from(const Section& log) {
  return {.every = Every::parse(log.text("every"), log.cite("every"), {.times = false, .never = false}),
          .window = log.integer("window"),
          .pictures = log.integer("pictures"),
          .fields = cited_text(log, "fields"),
          .field_samples = log.integer("field_samples"),
          .times_sections = log.boolean("sections")};
}

}  // namespace lockstep::engine
