// SPDX-License-Identifier: BSD-3-Clause
#include "source.hpp"

#include <lockstep/checkpoints/store.hpp>
#include <lockstep/core/key_spec.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#define XXH_INLINE_ALL  // compiled in, so that nothing more has to be linked
#include <xxhash.h>

#include "failure.hpp"
#include "text.hpp"

namespace lockstep::ckpt {

std::string digest_hex(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string digest_hex(const std::string& text) { return digest_hex(std::as_bytes(std::span(text))); }

std::string label_of(const std::string& path) {
  for (const std::string_view group : {"/model/params/", "/model/buffers/"}) {
    if (path.starts_with(group)) return path.substr(group.size());
  }
  return path.find('/', 1) == std::string::npos ? path.substr(1) : path;
}

Source Source::open(const std::string& path) {
  Source source;
  std::error_code ignored;
  source.path_ = path;
  source.kind_ = "lockstep checkpoint";
  source.archive_ = std::make_shared<checkpoints::Archive>(checkpoints::read(path));
  source.file_bytes_ = std::filesystem::file_size(path, ignored);
  for (const std::string& name : source.archive_->array_paths()) {
    const checkpoints::Array& array = source.archive_->array(name);
    ArrayInfo info;
    info.path = name;
    info.label = label_of(name);
    info.dtype = array.dtype;
    info.shape = array.shape;
    info.nbytes = array.bytes.size();
    info.order = source.arrays_.size();
    source.arrays_.push_back(std::move(info));
  }
  return source;
}

std::vector<std::string> Source::groups() const {
  std::vector<std::string> paths = archive_->group_paths();
  paths.insert(paths.begin(), "/");
  return paths;
}

const std::map<std::string, checkpoints::Attribute>& Source::attributes(const std::string& path) const {
  return archive_->attributes_of(path);
}

checkpoints::Array Source::read(const ArrayInfo& info) const { return archive_->array(info.path); }

std::string Source::digest(const ArrayInfo& info) const {
  return info.digest ? *info.digest : digest_hex(read(info).bytes);
}

Statistics Source::statistics(const ArrayInfo& info) const {
  return info.statistics ? *info.statistics : statistics_of(read(info));
}

const ArrayInfo& Source::find(const std::string& name) const {
  std::vector<const ArrayInfo*> ends;
  for (const ArrayInfo& info : arrays_) {
    const bool is_it = info.path == name || info.label == name || info.path == "/" + name || escaped(info.path) == name;
    if (is_it) return info;
    if (info.path.ends_with("/" + name)) ends.push_back(&info);
  }
  if (ends.size() == 1) return *ends[0];
  if (ends.size() > 1) {
    throw Failure(Exit::not_found, escaped(path_) + ": several arrays end in '" + escaped(name) + "', such as " +
                                       escaped(ends[0]->path) + " and " + escaped(ends[1]->path));
  }
  std::vector<std::string> labels;
  for (const ArrayInfo& info : arrays_) labels.push_back(info.label);
  const std::string near = nearest_name(name, labels);
  throw Failure(Exit::not_found,
                escaped(path_) + ": it has no array '" + escaped(name) + "'" +
                    (near.empty() ? "; `ckpt ls` lists them" : "; did you mean '" + escaped(near) + "'?"));
}

bool Source::has_group(const std::string& path) const {
  const std::vector<std::string> paths = groups();
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

}  // namespace lockstep::ckpt
