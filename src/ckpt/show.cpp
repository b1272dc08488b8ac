// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/selection.hpp"
#include "ckpt/reading/text.hpp"

namespace lockstep::ckpt {

namespace {

constexpr std::size_t kElements = 200;
constexpr std::size_t kTextBytes = 1 << 20;

/// "conv1.weight[0:4]: float32 [4, 1, 3, 3]" and a line for each row of the last dimension.
std::string value_text(const std::string& title, const std::vector<std::string>& values,
                       const std::vector<std::int64_t>& shape, std::int64_t all) {
  const auto row = static_cast<std::size_t>(shape.empty() ? 1 : std::max<std::int64_t>(shape.back(), 1));
  const std::size_t columns = std::min<std::size_t>(row, 16);
  TextTable table(std::vector<Align>(columns, Align::right));
  std::string text = title + "\n";
  const auto flush = [&] {
    text += table.text();
    table = TextTable(std::vector<Align>(columns, Align::right));
  };
  for (std::size_t begin = 0; begin < values.size(); begin += row) {
    const bool is_new_matrix =
        shape.size() > 2 && begin % (row * static_cast<std::size_t>(shape[shape.size() - 2])) == 0;
    if (is_new_matrix) {
      flush();
      const auto position = position_of(static_cast<std::int64_t>(begin), shape);
      text += fmt::format("[{}, :, :]\n", fmt::join(position.begin(), position.end() - 2, ", "));
    }
    const std::size_t end = std::min(begin + row, values.size());
    for (std::size_t i = begin; i < end; i += columns) {
      table.add({values.begin() + static_cast<std::ptrdiff_t>(i),
                 values.begin() + static_cast<std::ptrdiff_t>(std::min(i + columns, end))});
    }
  }
  flush();
  return text + rest_text(values.size(), static_cast<std::size_t>(all));
}

Exit show_group(const InspectedFile& source, const std::string& group, const Request& request) {
  OrderedJson root = {
      {"file", escaped(source.path())}, {"group", escaped(group)}, {"attributes", OrderedJson::object()}};
  TextTable table({Align::left, Align::left});
  for (const auto& [name, value] : source.attributes(group)) {
    root["attributes"][escaped(name)] = json_of(value);
    table.add({escaped(name), attribute_text(value)});
  }
  request.wants_json() ? print(root) : print(table.is_empty() ? "no attributes\n" : table.text());
  return Exit::ok;
}

/// Line ends and tabs as they are; everything else made safe.
std::string document_text(const std::string& text) {
  std::string safe;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] != '\n' && text[i] != '\t') continue;
    safe += escaped(std::string_view(text).substr(begin, i - begin));
    if (i < text.size()) safe += text[i];
    begin = i + 1;
  }
  return safe + (safe.ends_with('\n') ? "" : "\n");
}

Exit show_document(const Array& array, const Request& request) {
  if (array.dtype != DType::uint8) throw usage_error("--text is for arrays of uint8");
  const std::string text = checkpoints::text_of(array);
  if (text.size() > kTextBytes) throw usage_error("--text: the array has more than 1 MiB");
  request.wants_json() ? print(OrderedJson{{"text", document_text(text)}}) : print(document_text(text));
  return Exit::ok;
}

OrderedJson value_json(const Array& array, std::int64_t index, const NumberFormat& format) {
  if (format.is_hex || is_complex(array.dtype)) return element_text(array, index, format);
  return with_numbers(array, [&](auto load, std::int64_t) -> OrderedJson {
    const auto value = load(index);
    if constexpr (std::is_floating_point_v<decltype(load(0))>) return json_of(static_cast<double>(value));
    if (array.dtype == DType::boolean) return value != 0;
    return value;
  });
}

}  // namespace

Exit show(const Request& request) {
  const NameAndSlice last = split_slice(request.paths.back());
  if (last.slice.empty()) {  // perhaps a group
    const Located located = locate(request.paths.size() == 2 ? request.paths[0] : last.name);
    const std::string group = request.paths.size() == 2 ? last.name : located.inside.empty() ? "/" : located.inside;
    if (group.starts_with('/')) {
      const InspectedFile source = InspectedFile::open(located.file);
      if (source.has_group(group)) return show_group(source, group, request);
    }
  }
  const ArrayArgument named = open_array(request.paths);
  const Array array = named.source.read(*named.info);
  if (request.has("text")) return show_document(array, request);
  const ArraySlice slice = parse_slice(named.slice, array.shape);
  const std::vector<std::int64_t> shape = shape_of(slice);
  const std::int64_t all = element_count(shape);
  const auto limit = static_cast<std::int64_t>(limit_of(request, request.wants_json() ? SIZE_MAX / 2 : kElements));
  const NumberFormat format{static_cast<int>(std::min<std::int64_t>(request.integer("precision", 6, 1), 40)),
                            request.has("hex")};
  const auto elements = elements_of(slice, array.shape, limit);
  if (request.wants_json()) {
    OrderedJson root = json_of(*named.info);
    root["slice_shape"] = shape;
    root["values"] = OrderedJson::array();
    for (const std::int64_t element : elements) root["values"].push_back(value_json(array, element, format));
    print(root);
    return Exit::ok;
  }
  std::vector<std::string> values;
  for (const std::int64_t element : elements) values.push_back(element_text(array, element, format));
  const std::string title = escaped(named.info->path) + escaped(named.slice) + ": " +
                            std::string(name_of(array.dtype)) + " " + shape_text(shape);
  print(value_text(title, values, shape, all));
  return Exit::ok;
}

}  // namespace lockstep::ckpt
