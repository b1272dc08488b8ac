// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <map>
#include <utility>

#include "checkpoints/format/dataset.hpp"
#include "checkpoints/format/layout.hpp"
#include "checkpoints/format/limits.hpp"

namespace lockstep::checkpoints {

namespace {

class LayoutReader {
 public:
  LayoutReader(const std::string& path, const std::vector<ArrayLocation>& places) : places_(places) {
    for (const ArrayLocation& place : places) place_of_.emplace(place.path, &place);
    archive_.set_origin(path);
  }

  Archive read(MemoryFile& metadata, const std::vector<std::span<std::byte>>& bytes,
               const std::shared_ptr<const void>& owner) {
    check(metadata);
    for (std::size_t i = 0; i < places_.size(); ++i) {  // the order is that of the archive that was written
      const ArrayLocation& place = places_[i];
      object_ = place.path;
      const auto found = arrays_.find(place.path);
      const bool is_left_out = bytes[place.first == kNoArray ? i : place.first].data() == nullptr;
      if (is_left_out) continue;
      if (place.first == kNoArray) {
        Array& array = found->second.array;
        array.bytes = bytes[i];
        array.owner = owner;
        archive_.put(place.path, std::move(array));
      } else {
        archive_.link(place.path, places_[place.first].path);
      }
      for (auto& [name, value] : found->second.attributes) archive_.set(place.path, name, std::move(value));
    }
    return std::move(archive_);
  }

  void check(MemoryFile& metadata) {
    read_objects(metadata);
    for (const ArrayLocation& place : places_) {
      object_ = place.path;
      if (!arrays_.contains(place.path)) fail("it is in the index, but missing in the file");
    }
  }

  Archive read_groups(MemoryFile& metadata) {
    reads_arrays_ = false;
    read_objects(metadata);
    return std::move(archive_);
  }

  /// The object being read, for messages.
  const std::string& object() const noexcept { return object_; }

 private:
  struct Found {
    Array array;
    std::map<std::string, Attribute> attributes;
  };

  [[noreturn]] static void fail(const std::string& message, CheckpointFault fault = CheckpointFault::damaged) {
    throw CheckpointError(message).as(fault);
  }

  void read_objects(MemoryFile& memory) {
    const Handle access = memory.access_list();
    const Handle file(H5Fopen("archive", H5F_ACC_RDONLY, access.id()), H5Fclose, "H5Fopen");
    read_object(file.id(), "/", "/", 0);
  }

  void read_object(hid_t parent, const std::string& name, const std::string& path, std::size_t depth) {
    object_ = path;
    if (++objects_ > kMaxObjects)
      fail("there are more than " + std::to_string(kMaxObjects) + " objects", CheckpointFault::refused);
    if (depth > kMaxDepth)
      fail("it is nested more than " + std::to_string(kMaxDepth) + " groups deep, or in a cycle",
           CheckpointFault::refused);
    const Handle object(H5Oopen(parent, name.c_str(), H5P_DEFAULT), H5Oclose, "H5Oopen");
    const H5I_type_t kind = H5Iget_type(object.id());
    if (kind != H5I_GROUP && kind != H5I_DATASET) fail("it is neither a group nor an array");
    auto attributes = read_attributes(object.id());
    if (kind == H5I_DATASET) {
      arrays_.emplace(path, Found{read_array(object.id(), path), std::move(attributes)});
      return;
    }
    archive_.add_group(path);
    for (auto& [key, value] : attributes) archive_.set(path, key, std::move(value));
    for (const std::string& child : children(object.id())) {
      const std::string below = path == "/" ? path + child : path + "/" + child;
      if (reads_arrays_ || !place_of_.contains(below)) read_object(object.id(), child, below, depth + 1);
    }
  }

  /// Names of the links below a group, in order of creation.
  std::vector<std::string> children(hid_t group) {
    struct Links {
      std::vector<std::string> names;
      const char* fault = nullptr;
    } links;
    const auto visit = [](hid_t, const char* name, const H5L_info_t* info, void* data) -> herr_t {
      auto& found = *static_cast<Links*>(data);
      if (info->type != H5L_TYPE_HARD) found.fault = "it is a soft or external link; this is not allowed";
      if (!is_part(name)) found.fault = "it has a link with a malformed name";
      if (found.names.size() > kMaxObjects) found.fault = "it has too many links";
      if (found.fault != nullptr) return 1;
      found.names.emplace_back(name);
      return 0;
    };
    checked(H5Literate(group, H5_INDEX_CRT_ORDER, H5_ITER_INC, nullptr, visit, &links), "H5Literate");
    if (links.fault != nullptr) fail(links.fault, CheckpointFault::refused);
    return std::move(links.names);
  }

  /// Reads without its bytes. HDF5 is never requested them: they are where `places_` says, which was checked.
  Array read_array(hid_t set, const std::string& path) {
    const auto place = place_of_.find(path);
    if (place == place_of_.end()) fail("it is not in the index");
    const auto [offset, nbytes] = std::pair(place->second->offset, place->second->nbytes);
    if (nbytes == 0 || H5Dget_offset(set) != offset) require_contiguous(set);
    if (nbytes != 0 && H5Dget_offset(set) != offset) fail("its offset differs from the index");
    const Handle type(H5Dget_type(set), H5Tclose, "H5Dget_type");
    Array array{.dtype = types_.dtype_of(type.id()), .shape = shape_of(set), .bytes = {}, .owner = nullptr};
    if (nbytes_of(array.dtype, array.shape) != nbytes) fail("its shape does not fit its bytes");
    if (array.dtype != place->second->dtype || array.shape != place->second->shape) {
      fail("its type or shape differs from the index");
    }
    return array;
  }

  /// Says why an array does not lie in one stretch of the file.
  static void require_contiguous(hid_t set) {
    const Handle list(H5Dget_create_plist(set), H5Pclose, "H5Dget_create_plist");
    require_own_storage(list.id());
    if (H5Pget_layout(list.id()) != H5D_CONTIGUOUS) fail("it is not stored contiguously");
  }

  static std::map<std::string, Attribute> read_attributes(hid_t object) {
    std::vector<std::string> names;
    const auto visit = [](hid_t, const char* name, const H5A_info_t*, void* data) -> herr_t {
      static_cast<std::vector<std::string>*>(data)->emplace_back(name);
      return 0;
    };
    checked(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names), "H5Aiterate2");
    std::map<std::string, Attribute> attributes;
    for (const std::string& name : names) {
      if (name != kDTypeAttribute) attributes.emplace(name, read_attribute(object, name));
    }
    return attributes;
  }

  static Attribute read_attribute(hid_t object, const std::string& name) {
    const Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "H5Aopen");
    const Handle type(H5Aget_type(attribute.id()), H5Tclose, "H5Aget_type");
    const Handle space(H5Aget_space(attribute.id()), H5Sclose, "H5Aget_space");
    if (!is_part(name) || H5Sget_simple_extent_type(space.id()) != H5S_SCALAR) {
      fail("its attribute '" + name + "' is malformed");
    }
    if (H5Tequal(type.id(), H5T_STD_I64LE) > 0) {
      std::int64_t value = 0;
      checked(H5Aread(attribute.id(), H5T_NATIVE_INT64, &value), "H5Aread");
      return value;
    }
    if (H5Tequal(type.id(), H5T_IEEE_F64LE) > 0) {
      double value = 0;
      checked(H5Aread(attribute.id(), H5T_NATIVE_DOUBLE, &value), "H5Aread");
      return value;
    }
    const std::size_t size = H5Tget_size(type.id());
    if (H5Tget_class(type.id()) != H5T_STRING || H5Tis_variable_str(type.id()) != 0 || size > kMaxAttributeBytes) {
      fail("its attribute '" + name + "' has a type that is not supported");
    }
    std::string text(size, '\0');
    checked(H5Aread(attribute.id(), type.id(), text.data()), "H5Aread");
    text.resize(std::min(text.find('\0'), size));
    return text;
  }

  FileTypes types_;
  const std::vector<ArrayLocation>& places_;
  std::map<std::string, const ArrayLocation*> place_of_;
  std::map<std::string, Found> arrays_;
  Archive archive_;
  std::string object_ = "/";
  std::size_t objects_ = 0;
  bool reads_arrays_ = true;
};

/// Gives an error its file and object.
template <class Read>
auto read_with(const LayoutReader& reader, const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const CheckpointError& error) {
    throw CheckpointError(path, reader.object(), error.what()).as(error.fault());
  } catch (const std::logic_error& error) {  // Archive refuses it: such a file was not written by Lockstep
    throw CheckpointError(path, reader.object(), std::string("it is malformed: ") + error.what());
  }
}

}  // namespace

Archive read_tree(const std::string& path, MemoryFile& metadata, const std::vector<ArrayLocation>& places,
                  const std::vector<std::span<std::byte>>& bytes, const std::shared_ptr<const void>& owner) {
  const HdfSession session;
  LayoutReader reader(path, places);
  return read_with(reader, path, [&] { return reader.read(metadata, bytes, owner); });
}

void check_tree(const std::string& path, MemoryFile& metadata, const std::vector<ArrayLocation>& places) {
  const HdfSession session;
  LayoutReader reader(path, places);
  read_with(reader, path, [&] { reader.check(metadata); });
}

Archive read_tree_groups(const std::string& path, MemoryFile& metadata, const std::vector<ArrayLocation>& places) {
  const HdfSession session;
  LayoutReader reader(path, places);
  return read_with(reader, path, [&] { return reader.read_groups(metadata); });
}

}  // namespace lockstep::checkpoints
