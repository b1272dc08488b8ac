// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/interop/script_records.hpp"

#include <algorithm>
#include <string_view>

#include "checkpoints/foreign/zip.hpp"

namespace lockstep::checkpoints {

namespace {

/// Whether a record, or a folder with a '/' at its end, is directly below the archive's own folder. Deeper ones do not
/// count: the code of torchvision's models is in .../code/__torch__/torchvision/models/.
bool has_entry(const Zip& zip, std::string_view entry) {
  return std::ranges::any_of(zip.records(), [entry](const ZipRecord& record) {
    const std::size_t slash = record.name.find('/');
    if (slash == std::string::npos) return false;
    const std::string_view below = std::string_view(record.name).substr(slash + 1);
    return entry.ends_with('/') ? below.starts_with(entry) : below == entry;
  });
}

}  // namespace

std::string fault_of_script(const ByteSource& source) {
  const Zip zip(source);
  if (has_entry(zip, "serialized_exported_program.json") || has_entry(zip, "archive_format") ||
      has_entry(zip, "models/")) {
    return "is an archive of torch.export (.pt2), which has no code that can be trained here: use "
           "torch.jit.script(model).save(...) instead";
  }
  if (!has_entry(zip, "constants.pkl") || !has_entry(zip, "code/")) {
    return has_entry(zip, "data.pkl")
               ? "contains tensors without code (a state_dict or a checkpoint): choose a model by model.name and read "
                 "the file with init.from, or save the module with torch.jit.script(model).save(...)"
               : "is a zip archive, but not a TorchScript archive";
  }
  Expansion expansion(source);
  for (const ZipRecord& record : zip.records()) zip.read(record, "record '" + record.name + "'", expansion);
  return "";
}

}  // namespace lockstep::checkpoints
