// SPDX-License-Identifier: BSD-3-Clause
// Objects beside the tensors of a PyTorch file. The pieces of pickles were written by Python 3.11 and PyTorch 2.11.
#include "foreign_support.hpp"

namespace lockstep::checkpoints {
namespace pickle_objects_test {

using namespace std::string_literals;
using Strings = std::vector<std::string>;

std::string key(const std::string& text) { return "X" + le(text.size(), 4) + text; }

/// The storage of 2 elements in the record "data/0".
std::string storage(const std::string& type = "torch\nFloatStorage", const std::string& record = "0") {
  return "(" + key("storage") + "c" + type + "\n" + key(record) + key("cpu") + "K\x02tQ";
}

std::string tensor_args() {
  return "(" + storage() +
         "K\0K\x02\x85K\x01\x85\x89"
         "ccollections\nOrderedDict\n)Rt"s;
}

std::string tensor() { return "ctorch._utils\n_rebuild_tensor_v2\n" + tensor_args() + "R"; }

const std::string kRebuild = "ctorch._utils\n_rebuild_tensor_v2\n";
const std::string kAttributes = "}" + key("tag") + "K\x01s";

/// A file of a map with these entries: keys and values in turn.
std::string file_of(const std::string& entries) {
  const std::string values("\0\0\x80\x3F\0\0\0\x40", 8);  // 1, 2
  return zip_of(
      {{.name = "a/data.pkl", .bytes = "\x80\x02}(" + entries + "u."}, {.name = "a/data/0", .bytes = values}});
}

class PickleObjectsTest : public ::testing::Test {
 protected:
  Archive read(const std::string& entries) {
    put_bytes(path_, file_of(entries));
    left_out_.clear();
    return read_foreign(path_, {.left_out = &left_out_});
  }

  /// The tensor "w" is read, and this is left out.
  void expect_left_out(const std::string& entry, const Strings& expected) {
    SCOPED_TRACE(::testing::PrintToString(expected));
    const Archive archive = read(key("w") + tensor() + entry);
    EXPECT_EQ(values_of<float>(archive.array("/w")), (std::vector<float>{1, 2}));
    EXPECT_EQ(archive.array_paths().size(), 1U);
    EXPECT_EQ(left_out_, expected);
  }

  std::string error_of_file(const std::string& entries) {
    put_bytes(path_, file_of(entries));
    return error_of_foreign(path_);
  }

  const TemporaryFolder directory_;
  const std::string path_ = directory_ / "file.pth";
  Strings left_out_;
};

TEST_F(PickleObjectsTest, ObjectsOfEveryKindAreLeftOutAndNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"__main__.Color", "c__main__\nColor\nK\x01\x85R"},
      {"argparse.Namespace", "cargparse\nNamespace\n)\x81}" + key("mode") + "c__main__\nColor\nK\x01\x85Rsb"},
      {"datetime.datetime", "cdatetime\ndatetime\nc_codecs\nencode\n" + key("\x07\xC3\xA8\x01\x02\0\0\0\0\0\0"s) +
                                key("latin1") + "\x86R\x85R"},
      {"datetime.timedelta", "cdatetime\ntimedelta\nK\x01K\0K\0\x87R"s},
      {"functools.partial", "cfunctools\npartial\nc__main__\nf\nq\0\x85R(h\0K\x01\x85}Ntb"s},
      {"decimal.Decimal", "cdecimal\nDecimal\n" + key("1.5") + "\x85R"},
      {"collections.deque",
       "ccollections\ndeque\n)K\x05\x86R(K\x01K\x02"
       "e"},
      {"__builtin__.frozenset",
       "c__builtin__\nfrozenset\n]K\x01"
       "a\x85R"},
      {"__builtin__.xrange", "c__builtin__\nxrange\nK\0K\x03K\x01\x87R"s},
      {"types.SimpleNamespace", "ctypes\nSimpleNamespace\n)R}" + key("a") + "K\x01sb"},
      {"random.Random", "crandom\nRandom\n)R(K\x03(K\x01K\x02tNtb"},
      {"my_package.made_by_a_function", "cmy_package\nmade_by_a_function\n" + tensor() + "\x85R"},
      {"functools.partial", "cfunctools\npartial\n)R)R"},  // the result of a call is called
      {"collections.defaultdict",
       "ccollections\ndefaultdict\nc__builtin__\nint\n\x85R(" + key("a") + "K\x01" + key("b") + "K\x02u"},
      {"collections.Counter", "ccollections\nCounter\n}K\x05K\x01s\x85R"},
      {"numpy.core.multiarray.scalar",
       "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n" + key("f8") + "\x89\x88\x87R(K\x03" + key("<") +
           "NNNJ\xFF\xFF\xFF\xFFK\0tbc_codecs\nencode\n"s + key("12345678") + key("latin1") + "\x86R\x86R"},
      {"numpy.core.multiarray._reconstruct",
       "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85K\x62\x87R(K\x01K\x02\x85Ntb"s},
      {"pathlib.PosixPath", "cpathlib\nPosixPath\n(" + key("/") + key("runs") + "tR"},
      {"__builtin__.getattr", "c__builtin__\ngetattr\nc__main__\nColor\n" + key("RED") + "\x86R"},
      {"copy_reg._reconstructor", "ccopy_reg\n_reconstructor\nc__main__\nMeter\nc__builtin__\nobject\nN\x87R}b"},
      {"posix.uname_result", "cposix\nuname_result\n(" + key("Linux") + "t}\x86R"},
      {"subprocess.CompletedProcess", "csubprocess\nCompletedProcess\n)\x81}" + key("args") + key("git") + "sb"},
      {"int", "\x8B" + le(2000, 4) + std::string(2000, '\1')},
      {"torch.nn.MSELoss", "(" + key("module") + "ctorch.nn\nMSELoss\n" + key("loss.py") + key("class") + "tQ)\x81}b"},
  };
  for (const auto& [name, value] : cases) {
    expect_left_out(key("extra") + value, {"an object of " + name + " (under 'extra')"});
  }
  expect_left_out(key("class") + "cargparse\nNamespace\n", {"a reference to argparse.Namespace (under 'class')"});
  expect_left_out(key("class") + "ctorch\nSize\n", {"a reference to torch.Size (under 'class')"});
  expect_left_out(key("bytes") + storage(), {"the storage of a tensor (under 'bytes')"});
  expect_left_out(key("text") + key("\xFF"), {"a text that is not UTF-8 (under 'text')"});
}

// A map, and a tuple with a list, that contain themselves.
TEST_F(PickleObjectsTest, ReferencesToContainersAreLeftOut) {
  const std::string start = "a reference to an object that contains it (under ";
  expect_left_out(key("extra") + "}q\x05" + key("self") + "h\x05s", {start + "'self')"});
  expect_left_out(key("extra") + "]q\0h\0\x85q\1a0h\1"s, {start + "'0')"});
  expect_left_out(key("extra") + "(]q\0(h\0NNNtq\1aNNN1h\1"s, {start + "'0')"});
  expect_left_out(key("extra") + std::string(40, ']') + std::string(39, 'a'),
                  {"an object that is nested too deeply (under '0')"});
}

TEST_F(PickleObjectsTest, ModulesWithoutParametersAreLeftOut) {
  const auto module = [](const std::string& parameters, const std::string& modules) {
    return key("m") + "ctorch.nn\nModule\n)\x81}(" + key("_parameters") + parameters + key("_buffers") + "}" +
           key("weight") + tensor() + "s" + key("_modules") + modules + "ub";
  };
  const std::string with_parameters = "}" + key("weight") + tensor() + "s";
  expect_left_out(module("}" + key("bias") + "Ns", "}"), {"an object of torch.nn.Module (under 'm')"});
  const std::string inner = module(with_parameters, "}");
  for (const std::string& whole : {inner, module("}", "}" + inner + "s")}) {
    EXPECT_NE(error_of_file(key("w") + tensor() + whole).find("/m: it contains a whole module 'torch.nn.Module'"),
              std::string::npos);
  }
}

TEST_F(PickleObjectsTest, KeysThatAreNoNamesAreLeftOut) {
  const std::string entry = "an entry with ";
  const std::string other = entry + "a key that is neither a text nor an integer (in 'extra')";
  for (const std::string& one : {"K\0K\x01\x86"s, "N"s, "G\0\0\0\0\0\0\0\0"s, "\x88"s, "cargparse\nNamespace\n"s,
                                 "ctorch\nfloat32\n"s, "c_codecs\nencode\n)R"s}) {
    expect_left_out(key("extra") + "}" + one + tensor() + "s", {other});
  }
  expect_left_out(key("extra") + "}" + key("") + "K\x01s", {entry + "an empty key (in 'extra')"});
  expect_left_out(key("extra") + "}" + key("\xFF") + "K\x01s", {entry + "a key that is not UTF-8 (in 'extra')"});
  expect_left_out(key("extra") + "}" + key(std::string(1025, 'k')) + "K\x01s",
                  {entry + "a key of more than 1024 bytes (in 'extra')"});
  expect_left_out("N" + tensor(), {entry + "a key that is neither a text nor an integer"});
}

// Python has both of them. The text is the name, whatever their order.
TEST_F(PickleObjectsTest, OtherKeysBesideTheSameTextAreLeftOut) {
  const std::pair<std::string, std::string> converted[] = {
      {"cpu", "ctorch\ndevice\n" + key("cpu") + "\x85R"},
      {"18446744073709551616", "\x8A\x09\0\0\0\0\0\0\0\0\x01"s},
  };
  for (const auto& [name, object] : converted) {
    EXPECT_EQ(read(key("extra") + "}(" + object + "K\x01" + key(name) + "K\x02u").integer("/extra", name), 2);
    EXPECT_EQ(left_out_, Strings({"an entry with '" + name + "' as its key, which is also a text (in 'extra')"}));
    EXPECT_EQ(read(key("extra") + "}" + object + "K\x01s").integer("/extra", name), 1);
    EXPECT_TRUE(left_out_.empty());
  }
  for (const std::string& entries : {"K\x19K\x01" + key("25") + "K\x02", key("25") + "K\x02K\x19K\x01"}) {
    const Archive archive = read(key("extra") + "}(" + entries + "u");
    EXPECT_EQ(archive.integer("/extra", "25"), 2);
    EXPECT_EQ(left_out_, Strings({"an entry with the number 25 as its key, which is also a text (in 'extra')"}));
  }
  EXPECT_EQ(read(key("extra") + "}K\x19K\x01s").integer("/extra", "25"), 1);
  EXPECT_NE(error_of_file(key("w") + "K\x01" + key("w") + "K\x02").find("the name is used twice"), std::string::npos);
}

TEST_F(PickleObjectsTest, TensorsWithAttributesAreRead) {
  const std::string type_v2 = "ctorch._tensor\n_rebuild_from_type_v2\n(" + kRebuild + "ctorch\nTensor\n";
  for (const std::string& value :
       {"ctorch._utils\n_rebuild_parameter_with_state\n(" + tensor() + "\x88)" + kAttributes + "tR",
        type_v2 + tensor_args() + kAttributes + "tR",
        "ctorch._utils\n_rebuild_parameter\n(" + type_v2 + tensor_args() + kAttributes + "tR\x88)tR",
        "ctorch._tensor\n_rebuild_from_type\n(" + kRebuild + "cfastai.torch_core\nTensorBase\n" + tensor_args() + "}tR",
        tensor() + kAttributes + "b"}) {
    const Archive archive = read(key("w") + value);
    EXPECT_EQ(values_of<float>(archive.array("/w")), (std::vector<float>{1, 2}));
    EXPECT_TRUE(left_out_.empty()) << ::testing::PrintToString(left_out_);
  }
  const std::string nested = type_v2.substr(0, type_v2.find('(')) + "(" + type_v2.substr(0, type_v2.find('('));
  EXPECT_NE(error_of_file(key("w") + nested + "N)tR").find("a tensor is nested in another"), std::string::npos);
}

TEST_F(PickleObjectsTest, TensorsOfOtherTypesAreNamed) {
  const std::string view = "K\0K\x02\x85K\x01\x85\x89)"s;
  const std::string untyped = "ctorch._utils\n_rebuild_tensor_v3\n(" + storage("torch.storage\nUntypedStorage") + view;
  const std::pair<std::string, std::string> cases[] = {
      {"a tensor of type torch.float8_e4m3fn", untyped + "ctorch\nfloat8_e4m3fn\ntR"},
      {"a tensor of type torch.uint16", untyped + "ctorch\nuint16\ntR"},
      {"a tensor of a torch.QInt8Storage", kRebuild + "(" + storage("torch\nQInt8Storage") + view + "tR"},
      {"a quantized tensor",
       "ctorch._utils\n_rebuild_qtensor\n(" + storage("torch\nQInt8Storage") + "K\0K\x02\x85K\x01\x85))tR"s},
      {"a sparse tensor", "ctorch._utils\n_rebuild_sparse_tensor\nctorch.serialization\n_get_layout\n" +
                              key("torch.sparse_coo") + "\x85R(" + tensor() + tensor() + "t\x86R"},
      {"a tensor with a pending conjugation or negation",
       kRebuild + "(" + storage("torch\nComplexFloatStorage") + view + "}" + key("conj") + "\x88stR"},
      {"a sparse tensor", "ctorch._utils\n_rebuild_parameter\n(ctorch._utils\n_rebuild_sparse_tensor\n)R\x88)tR"},
      {"a parameter of my.int4", "ctorch._utils\n_rebuild_parameter\n(cmy\nint4\n)R\x88)tR"},
  };
  for (const auto& [description, value] : cases) {
    expect_left_out(key("conv.weight") + value, {description + " (under 'conv.weight')"});
    // There is nothing to read without any other tensor.
    EXPECT_EQ(error_of_file(key("conv.weight") + value),
              path_ + ": /conv.weight: it is " + description + ", which is not supported");
  }
}

// Files before version 1.6 state the elements of a storage, and not its bytes.
TEST_F(PickleObjectsTest, QuantizedTensorsOfOldFilesAreNamed) {
  const std::string head = "\x80\x02";
  const std::string magic("\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19", 10);
  const std::string quantized =
      "ctorch._utils\n_rebuild_qtensor\n(" + storage("torch\nQInt32Storage", "1") + "K\0K\x02\x85K\x01\x85))tR"s;
  put_bytes(path_, head + "\x8A\x0A" + magic + "." + head + "M\xE9\x03." + head + "}" + key("little_endian") +
                       "\x88s." + head + "}(" + key("w") + tensor() + key("q") + quantized + "u." + head + "](" +
                       key("1") + key("0") + "e." + le(2, 8) + le(7, 8) + le(2, 8) +
                       std::string("\0\0\x80\x3F\0\0\0\x40", 8));
  const Archive archive = read_foreign(path_, {.left_out = &left_out_});
  EXPECT_EQ(values_of<float>(archive.array("/w")), (std::vector<float>{1, 2}));
  EXPECT_EQ(left_out_, Strings({"a quantized tensor (under 'q')"}));
}

// Nothing would be executed here, but other programs would execute it.
TEST_F(PickleObjectsTest, CallsThatAttackReadersAreRefused) {
  for (const char* const name : {"os\nsystem", "posix\nsystem", "subprocess\nPopen", "builtins\neval",
                                 "__builtin__\neval", "torch.hub\nload", "runpy\nrun_path"}) {
    const std::string error =
        error_of_file(key("w") + tensor() + key("extra") + "c" + name + "\n" + key("true") + "\x85R");
    EXPECT_NE(error.find("nothing was executed"), std::string::npos) << name << ": " << error;
  }
  EXPECT_NE(error_of_file(key("w") + tensor() + key("x") + "ccollections\nOrderedDict\n)Rcmy\nstate\n)Rb"), "")
      << "the attributes of a map are an object";
}

}  // namespace pickle_objects_test
}  // namespace lockstep::checkpoints
