// SPDX-License-Identifier: BSD-3-Clause
// Python's own libraries read what we write, and we read what they write. PYTHON names a Python that has them.
#include "foreign_support.hpp"

namespace lockstep::checkpoints {
namespace foreign_python_test {

/// Runs a script in `directory`, where its files are.
testing::ProgramResult run_python(const std::string& python, const TemporaryFolder& directory,
                                  const std::string& script) {
  put_bytes(directory / "script.py", script);
  return testing::run_shell("cd '" + directory.path() + "' && " + python + " script.py", 120);
}

std::vector<NamedArray> arrays_for_python() {
  std::vector<NamedArray> arrays = arrays_of_all_dtypes();
  std::erase_if(arrays, [](const NamedArray& one) { return one.name == "."; });
  return arrays;
}

/// Prints what a dict of tensors holds, as lines_of does.
const char* const kPrintTensors = R"(
import torch
def lines(tensors):
    for name, t in tensors.items():
        raw = t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
        yield f"{name} {str(t.dtype)[6:]} {list(t.shape)} {raw.hex()}"
)";

std::string line_of(const std::string& name, const Array& array) {
  std::string line = name + " " + std::string(name_of(array.dtype)) + " [";
  for (std::size_t i = 0; i < array.shape.size(); ++i) line += (i == 0 ? "" : ", ") + std::to_string(array.shape[i]);
  line += "] ";
  for (const std::byte byte : array.bytes) {
    line += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    line += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return line;
}

std::string lines_of(const std::vector<NamedArray>& arrays) {
  std::string lines;
  for (const auto& [name, array] : arrays) lines += line_of(name, array) + "\n";
  return lines;
}

std::string lines_of(const Archive& archive) {
  std::string lines;
  for (const std::string& path : archive.array_paths()) {
    lines += line_of(decode_name(path.substr(1)), archive.array(path)) + "\n";
  }
  return lines;
}

std::string sorted(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
  }
  std::sort(lines.begin(), lines.end());
  std::string joined;
  for (const std::string& line : lines) joined += line + "\n";
  return joined;
}

TEST(ForeignPythonTest, TorchLoadsAndSaves) {
  const std::string python = python_with("torch, numpy");
  if (python.empty()) GTEST_SKIP() << "no Python with torch and numpy (PYTHON names one)";
  const TemporaryFolder directory;
  const std::vector<NamedArray> arrays = arrays_for_python();
  write_foreign(directory / "ours.pt", ExportKind::pytorch, arrays, {{"note", "text"}});
  const auto outcome = run_python(python, directory, std::string(kPrintTensors) + R"(
tensors = torch.load("ours.pt", weights_only=True)
assert type(tensors) is dict
print("\n".join(lines(tensors)))
torch.save(tensors, "theirs.pt")
layer = torch.nn.Linear(3, 2)
torch.save({"net": layer.state_dict(), "opt": torch.optim.SGD(layer.parameters(), lr=0.5).state_dict()}, "nested.pt")
)");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.output, lines_of(arrays));
  EXPECT_EQ(lines_of(read_foreign(directory / "theirs.pt")), lines_of(arrays));
  const Archive nested = read_foreign(directory / "nested.pt");
  EXPECT_EQ(nested.array("/net/weight").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(nested.real("/opt/param_groups/0", "lr"), 0.5);
  EXPECT_EQ(nested.integer("/opt/param_groups/0/params", "1"), 1);
}

TEST(ForeignPythonTest, SafetensorsLoadsAndSaves) {
  const std::string python = python_with("torch, numpy, safetensors.torch");
  if (python.empty()) GTEST_SKIP() << "no Python with torch, numpy and safetensors (PYTHON names one)";
  const TemporaryFolder directory;
  std::vector<NamedArray> arrays = arrays_for_python();
  std::erase_if(arrays, [](const NamedArray& one) { return one.array.dtype == DType::complex128; });
  write_foreign(directory / "ours.safetensors", ExportKind::safetensors, arrays, {{"note", "schön"}});
  const auto outcome = run_python(python, directory, std::string(kPrintTensors) + R"(
import safetensors, safetensors.torch
with safetensors.safe_open("ours.safetensors", "pt") as f:
    assert f.metadata() == {"format": "pt", "note": "schön"}, f.metadata()
tensors = safetensors.torch.load_file("ours.safetensors")
print("\n".join(lines(tensors)))
safetensors.torch.save_file(tensors, "theirs.safetensors", {"note": "schön"})
)");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(sorted(outcome.output), sorted(lines_of(arrays)));
  const Archive theirs = read_foreign(directory / "theirs.safetensors");
  EXPECT_EQ(sorted(lines_of(theirs)), sorted(lines_of(arrays)));
  EXPECT_EQ(theirs.text("/", "note"), "schön");
}

TEST(ForeignPythonTest, NumpyLoadsAndSaves) {
  const std::string python = python_with("numpy");
  if (python.empty()) GTEST_SKIP() << "no Python with numpy (PYTHON names one)";
  const TemporaryFolder directory;
  std::vector<NamedArray> arrays = arrays_for_python();
  std::erase_if(arrays, [](const NamedArray& one) {
    return one.array.dtype == DType::bfloat16 || one.name.find('/') != std::string::npos;
  });
  write_foreign(directory / "ours.npz", ExportKind::npz, arrays, {{"note", "text"}});
  const auto outcome = run_python(python, directory, R"(
import numpy
f = numpy.load("ours.npz", allow_pickle=False)
assert f["__metadata__.json"] == b'{"note":"text"}', f["__metadata__.json"]
arrays = {name: f[name] for name in f.files if name != "__metadata__.json"}
for name, a in arrays.items():
    print(name, a.dtype, list(a.shape), a.tobytes().hex())
numpy.savez_compressed("theirs.npz", **{name: numpy.asfortranarray(a) if a.ndim else a for name, a in arrays.items()})
)");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.output, lines_of(arrays));
  EXPECT_EQ(lines_of(read_foreign(directory / "theirs.npz")), lines_of(arrays));
}

TEST(ForeignPythonTest, H5pyLoadsAndSaves) {
  const std::string python = python_with("h5py, numpy");
  if (python.empty()) GTEST_SKIP() << "no Python with h5py and numpy (PYTHON names one)";
  const TemporaryFolder directory;
  std::vector<NamedArray> arrays = arrays_for_python();
  std::erase_if(arrays, [](const NamedArray& one) {
    return one.array.dtype == DType::bfloat16 || one.name.find('/') != std::string::npos;
  });
  std::vector<NamedArray> written = arrays;
  written.push_back({"bf16", array_of<std::uint16_t>(DType::bfloat16, {2}, {0x3FC0, 0xC020})});  // 1.5, -2.5
  write_foreign(directory / "ours.h5", ExportKind::hdf5, written, {{"note", "text"}});
  EXPECT_EQ(bytes_of(directory / "ours.h5").substr(0, 4), "\x89HDF") << "a plain file begins with the signature";
  const auto outcome = run_python(python, directory, R"(
import h5py, numpy
with h5py.File("ours.h5", "r") as f, h5py.File("theirs.h5", "w", track_order=True) as g:
    assert f.attrs["note"] == b"text", f.attrs["note"]
    assert f["bf16"][()].tolist() == [1.5, -2.5]
    for name in f:
        if name == "bf16": continue
        a = f[name][()]
        print(name, a.dtype, list(a.shape), a.tobytes().hex())
        packed = {"compression": "gzip", "shuffle": True, "fletcher32": True} if a.size and a.ndim else {}
        g.create_dataset(name, data=a, **packed)
    g.attrs["step"] = 7
    g.attrs["rate"] = 0.5
    g.attrs["note"] = numpy.bytes_("fixed")
    g.attrs["variable"] = "left out"
)");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(sorted(outcome.output), sorted(lines_of(arrays)));
  const Archive theirs = read_foreign(directory / "theirs.h5");
  EXPECT_EQ(sorted(lines_of(theirs)), sorted(lines_of(arrays)));
  EXPECT_EQ(theirs.integer("/", "step"), 7);
  EXPECT_EQ(theirs.real("/", "rate"), 0.5);
  EXPECT_EQ(theirs.text("/", "note"), "fixed");
  EXPECT_FALSE(theirs.has_attribute("/", "variable"));
}

}  // namespace foreign_python_test
}  // namespace lockstep::checkpoints
