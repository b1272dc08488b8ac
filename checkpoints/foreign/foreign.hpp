// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

/// Files of other programs: safetensors, PyTorch's .pt, NumPy's .npz and plain HDF5. FORMAT.md has no say here.
///
/// Whatever a file holds is data: nothing in it is run, and nothing outside it is opened. Sizes are checked before
/// memory is taken. Not collective.
namespace lockstep::checkpoints {

/// The kind of the file, by its bytes, never by its name.
enum class FileKind { lockstep, hdf5, safetensors, safetensors_index, pytorch, npz, unknown };

/// @throws CheckpointError  it cannot be opened, or is no regular file
FileKind kind_of(const std::string& path);

/// "a PyTorch file", for sentences.
std::string describe(FileKind kind);

/// The same of a file; for HDF5 with the program that wrote it, if it is known ("an HDF5 file of Keras").
/// @throws CheckpointError  as kind_of()
std::string describe(const std::string& path);

/// The file itself; of the index of several safetensors files, those too.
std::vector<std::string> files_of(const std::string& path);

/// How a file is read.
struct ForeignReading {
  /// If not null, receives what was left out, and where: "an object of argparse.Namespace (under 'args')".
  std::vector<std::string>* left_out = nullptr;
  /// Arrays are the mapped bytes of the file where their place and order allow it (safetensors, PyTorch and npz), so
  /// that all processes of a host share them. The file must not change while they are used: see require_unchanged.
  bool is_mapped = false;
  /// Checks of the records of a zip archive, only every `parts`-th from number `part` on is compared with its CRC-32.
  /// Processes that read one file divide this work.
  std::size_t part = 0;
  std::size_t parts = 1;
};

/// Reads a safetensors, PyTorch or npz file, or an HDF5 file of another program, into memory. The index of a model in
/// several safetensors files (`model.safetensors.index.json`) stands for all of them.
///
/// An array has the path "/<name>". Maps and lists of a PyTorch file become groups ("/optimizer/state/0/exp_avg"), and
/// their numbers and strings attributes of the group ("betas" is a group with the attributes "0" and "1"); what is None
/// is left out. A name becomes a part of a path by encode_name; the attribute name "torch_dtype" becomes
/// "torch%5Fdtype". The metadata of safetensors, and what write_foreign was given as such, are attributes of "/". A
/// text too long for an attribute is a text_array: below the group, or "/__metadata__/<name>" for metadata. Views are
/// copied, so that every array is in row-major order and starts on a multiple of its element's size. Two names of one
/// tensor (tied weights) are links.
///
/// What else a PyTorch file contains is left out, and nothing is built of it: objects of unknown classes, such as
/// argparse.Namespace, tensors of types that DType lacks beside others, entries of maps whose keys are neither texts
/// nor integers, and references of an object to one that contains it. So are arrays of texts, objects and records in an
/// npz file beside others.
///
/// An HDF5 file is parsed in a child process that can open nothing; attributes that are no single number or text of
/// fixed length are left out.
/// @throws CheckpointError  in one sentence: unreadable, malformed, damaged, of an element type that DType lacks
///                          (naming the array), holding anything but data, or claiming more than it may hold
Archive read_foreign(const std::string& path, const ForeignReading& reading = {});

/// Drops the pages of a mapped array from memory. If it is used again, they come from the file. Other arrays are kept.
void release_pages(const Array& array);

/// Call it after mapped arrays were used.
/// @throws CheckpointError  a mapped file was written to or became shorter since it was mapped, so that bytes of its
///                          arrays can be wrong; missing ones are zeros
void require_unchanged(const Archive& archive);

enum class ExportKind { safetensors, pytorch, npz, hdf5 };

/// The kind by suffix: .safetensors, .pt or .pth, .npz, .h5 or .hdf5.
std::optional<ExportKind> export_kind_of(const std::string& path);

struct NamedArray {
  std::string name;  ///< any UTF-8 text of 1 to 1024 bytes, such as "layer1.0.conv.weight"; not a path
  Array array;
};

enum class IfExists { refuse, replace };

/// Texts by name that a file has beside its arrays.
using ForeignMetadata = std::map<std::string, std::string>;

/// Writes a flat map from name to array, in the order given (safetensors: sorted by size of element, then name).
///
/// When it returns the file survives a power cut; when it throws, `path` is as it was. PyTorch reads the .pt with
/// weights_only=True as a dict of tensors; no two share memory. NumPy has no bfloat16: an .npz holds float32 of the
/// same values. An .h5 has one data set for each name, as encode_name spells it.
/// @param metadata  texts without NUL: safetensors' __metadata__, attributes of the root of an .h5, and in a .pt or
///                  .npz a record of JSON that Python's readers ignore
/// @throws CheckpointError  there is such a file, two names are equal, a name or a type that the format does not know
///                          (complex128 in safetensors), or the disk fails
void write_foreign(const std::string& path, ExportKind kind, const std::vector<NamedArray>& arrays,
                   const ForeignMetadata& metadata, IfExists if_exists = IfExists::refuse);

/// A value of Python: None, a bool, an int, a float, a str, a tensor, a list or tuple, or a dict.
struct PythonValue {
  struct List {
    std::vector<PythonValue> items = {};
    bool is_tuple = false;
  };
  struct Entry;
  struct Map {
    std::vector<Entry> items;
  };

  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, List, Map> value;
};

struct PythonValue::Entry {
  std::variant<std::int64_t, std::string> key;
  PythonValue value;
};

/// Writes a .pt with one value, which PyTorch reads with weights_only=True. When it returns the file survives a power
/// cut; when it throws, `path` is as it was.
/// @throws CheckpointError  there is such a file (refused), a type that PyTorch does not have, or the disk fails
void write_pytorch_value(const std::string& path, const PythonValue& value);

}  // namespace lockstep::checkpoints
