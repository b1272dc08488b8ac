// SPDX-License-Identifier: BSD-3-Clause

#include <functional>

#include "report/files/run_files.hpp"
#include "report/page/run_page.hpp"
#include "trainer/commands/commands.hpp"

namespace lockstep::trainer {

namespace {

/// Written on rank 0, for all.
ExitCode write_page(const CommandJob& job, const std::string& path, const std::function<std::string()>& page) {
  job.world.all_or_throw([&] {
    if (job.world.is_root()) report::write_text(path, page());
  });
  print_result(job.world, path);
  return ExitCode::done;
}

}  // namespace

ExitCode write_report(const CommandJob& job, const config::Invocation& invocation) {
  const std::string& folder = invocation.words.at(0);
  return write_page(job, folder + "/report.html", [&] { return report::run_page(folder); });
}

ExitCode compare_runs(const CommandJob& job, const config::Invocation& invocation) {
  const auto out = invocation.options.find("out");
  return write_page(job, out == invocation.options.end() ? "compare.html" : out->second,
                    [&] { return report::comparison_page(invocation.words); });
}

}  // namespace lockstep::trainer
