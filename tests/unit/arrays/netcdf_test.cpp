// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "arrays/array_file.hpp"
#include "arrays/netcdf_file.hpp"
#include "checkpoints/format/hdf5.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::arrays {
namespace netcdf_test {

using checkpoints::Handle;
using checkpoints::HdfSession;
using testing::TemporaryFolder;

constexpr NumberType kFloat = {.kind = NumberKind::real, .bytes = 4};
constexpr NumberType kDouble = {.kind = NumberKind::real, .bytes = 8};
constexpr NumberType kInt = {.kind = NumberKind::signed_integer, .bytes = 4};

AttributeValue text(const std::string& value) { return std::vector<std::string>{value}; }

/// Fields at 4 times and 3 x 2 points, with 2 steps that have no coordinates.
NetcdfContents contents() {
  return {.dimensions = {{"time", 4}, {"step", 2}, {"lat", 3}, {"lon", 2}},
          .variables = {{.name = "lat",
                         .dimensions = {"lat"},
                         .type = kFloat,
                         .attributes = {{"units", text("degrees_north")}},
                         .values = {-45.5, 0, 45.5}},
                        {.name = "time",
                         .dimensions = {"time"},
                         .type = kDouble,
                         .attributes = {{"calendar", text("noleap")}, {"units", text("hours since 2000-01-01")}}},
                        {.name = "t2m",
                         .dimensions = {"time", "step", "lat", "lon"},
                         .type = kFloat,
                         .attributes = {{"coordinates", text("run")}, {"long_name", text("température")}},
                         .has_gaps = true},
                        {.name = "run", .dimensions = {"time"}, .type = kInt},
                        {.name = "height", .dimensions = {}, .type = kDouble, .values = {2.5}}},
          .attributes = {{"Conventions", text("CF-1.8")},
                         {"empty", text("")},
                         {"level", std::vector<std::int64_t>{3, -4}},
                         {"names", std::vector<std::string>{"a b", "c"}},
                         {"weights", std::vector<double>{0.5, 0.25}}}};
}

template <class Number>
std::vector<Number> counted(std::int64_t first, std::int64_t count) {
  std::vector<Number> numbers;
  for (std::int64_t i = first; i < first + count; ++i) numbers.push_back(static_cast<Number>(i));
  return numbers;
}

const NetcdfVariable& variable(const NetcdfContents& all, const std::string& name) {
  for (const NetcdfVariable& each : all.variables) {
    if (each.name == name) return each;
  }
  throw std::logic_error(name);
}

/// Writes samples [begin, end) of contents().
void write_samples(NewNetcdfFile& file, const NetcdfContents& all, std::int64_t begin, std::int64_t end) {
  std::vector<float> fields = counted<float>(12 * begin, 12 * (end - begin));
  if (begin == 0) fields[1] = std::nanf("");
  file.write(variable(all, "t2m"), 12 * begin, std::as_bytes(std::span(fields)));
  const std::vector<double> times = counted<double>(6 + begin, end - begin);
  file.write(variable(all, "time"), begin, std::as_bytes(std::span(times)));
  const std::vector<std::int32_t> runs = counted<std::int32_t>(begin, end - begin);
  file.write(variable(all, "run"), begin, std::as_bytes(std::span(runs)));
}

/// Writes the file by two processes, the second of which has the samples from `cut` on.
std::string written(const TemporaryFolder& folder, const std::string& name, std::int64_t cut) {
  const std::string path = folder.path(name);
  const NetcdfContents all = contents();
  NewNetcdfFile first(all, {.path = path + ".part", .final_path = path, .is_owner = true});
  NewNetcdfFile second(all, {.path = path + ".part", .final_path = path, .is_owner = false});
  write_samples(second, all, cut, 4);
  write_samples(first, all, 0, cut);
  second.close();
  first.finish();
  first.publish();
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  return path;
}

template <class Number>
std::vector<Number> read_all(const ArrayFile& file, const std::string& name) {
  const ArrayInfo info = file.find(name);
  std::vector<Number> numbers(static_cast<std::size_t>(size_of(whole(info))));
  file.read(info, whole(info), std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

template <class Failing>
std::string error_of(const Failing& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(NetcdfTest, OurReaderReadsWhatWasWritten) {
  const TemporaryFolder folder;
  const auto file = open_arrays(written(folder, "a.nc", 3));
  const ArrayInfo fields = file->find("t2m");
  EXPECT_EQ(fields.shape, (std::vector<std::int64_t>{4, 2, 3, 2}));
  EXPECT_EQ(fields.axes, (std::vector<std::string>{"time", "step", "lat", "lon"}));
  EXPECT_EQ(fields.type, kFloat);
  EXPECT_EQ(fields.storage.layout, "contiguous");
  EXPECT_EQ(texts_of(fields.attributes, "long_name"), std::vector<std::string>{"température"});
  EXPECT_TRUE(std::isnan(numbers_of(fields.attributes, "_FillValue").at(0)));
  std::vector<float> values = read_all<float>(*file, "t2m");
  EXPECT_TRUE(std::isnan(values[1]));
  values[1] = 1;
  EXPECT_EQ(values, counted<float>(0, 48));
  EXPECT_EQ(read_all<float>(*file, "lat"), (std::vector<float>{-45.5F, 0, 45.5F}));
  EXPECT_EQ(read_all<double>(*file, "time"), counted<double>(6, 4));
  EXPECT_EQ(read_all<std::int32_t>(*file, "run"), counted<std::int32_t>(0, 4));
  EXPECT_EQ(read_all<double>(*file, "height"), std::vector<double>{2.5});
  EXPECT_EQ(file->find("lat").axes, std::vector<std::string>{"lat"});
  EXPECT_EQ(texts_of(file->find("time").attributes, "calendar"), std::vector<std::string>{"noleap"});
  const Attributes attributes = file->attributes_of("");
  EXPECT_EQ(texts_of(attributes, "names"), (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(numbers_of(attributes, "level"), (std::vector<double>{3, -4}));
  EXPECT_EQ(numbers_of(attributes, "weights"), (std::vector<double>{0.5, 0.25}));
  EXPECT_TRUE(texts_of(attributes, "_NCProperties").at(0).starts_with("version=2,lockstep="));
}

TEST(NetcdfTest, BytesDoNotDependOnWhoWrites) {
  const TemporaryFolder folder;
  const std::string bytes = testing::read_file(written(folder, "1.nc", 1));
  EXPECT_EQ(testing::read_file(written(folder, "2.nc", 3)), bytes);
  EXPECT_TRUE(bytes.starts_with("\x89HDF"));
}

TEST(NetcdfTest, AnUnfinishedFileLooksLikeNone) {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.nc");
  const NetcdfContents all = contents();
  {
    NewNetcdfFile file(all, {.path = path + ".part", .final_path = path});
    write_samples(file, all, 0, 4);
    std::filesystem::copy(path + ".part", folder.path("killed.nc"));
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_NE(error_of([&] { open_arrays(folder.path("killed.nc")); }), "");
    EXPECT_NE(error_of([&] { NewNetcdfFile(all, {.path = path + ".part", .final_path = path}); }), "");
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

/// The references of an attribute, as a number of entries.
hssize_t entries(hid_t object, const char* name) {
  if (H5Aexists(object, name) <= 0) return 0;
  const Handle attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose, "H5Aopen");
  const Handle space(H5Aget_space(attribute.id()), H5Sclose, "H5Aget_space");
  return H5Sget_simple_extent_npoints(space.id());
}

TEST(NetcdfTest, DimensionsAreScales) {
  const TemporaryFolder folder;
  const std::string path = written(folder, "a.nc", 2);
  const auto reader = open_arrays(path);
  std::int64_t number = 0;
  for (const std::string name : {"time", "step", "lat", "lon"}) {
    const ArrayInfo scale = reader->find(name);
    EXPECT_EQ(texts_of(scale.attributes, "CLASS"), std::vector<std::string>{"DIMENSION_SCALE"}) << name;
    const bool has_coordinates = name == "time" || name == "lat";
    const std::string label = "This is a netCDF dimension but not a netCDF variable.         2";
    EXPECT_EQ(texts_of(scale.attributes, "NAME"), std::vector<std::string>{has_coordinates ? name : label}) << name;
    EXPECT_EQ(numbers_of(scale.attributes, "_Netcdf4Dimid"), std::vector<double>{static_cast<double>(number++)});
  }
  const HdfSession session;
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "H5Fopen");
  const auto count = [&](const char* array, const char* attribute) {
    const Handle set(H5Dopen2(file.id(), array, H5P_DEFAULT), H5Dclose, "H5Dopen2");
    return entries(set.id(), attribute);
  };
  EXPECT_EQ(count("time", "REFERENCE_LIST"), 2);
  EXPECT_EQ(count("lon", "REFERENCE_LIST"), 1);
  EXPECT_EQ(count("t2m", "DIMENSION_LIST"), 4);
  EXPECT_EQ(count("t2m", "REFERENCE_LIST"), 0);
  EXPECT_EQ(count("lat", "DIMENSION_LIST"), 0);
  EXPECT_EQ(count("height", "DIMENSION_LIST"), 0);
}

// The list of the arrays that use a scale is larger than HDF5 stores next to the scale.
TEST(NetcdfTest, ThousandsOfVariablesShareADimension) {
  const TemporaryFolder folder;
  NetcdfContents all{.dimensions = {{"x", 2}}, .variables = {}};
  constexpr int kVariables = 5000;
  for (int i = 0; i < kVariables; ++i) {
    all.variables.push_back(
        {.name = "v" + std::to_string(i), .dimensions = {"x"}, .type = kFloat, .values = {1.0 * i, 2.0 * i}});
  }
  NewNetcdfFile file(all, {.path = folder.path("part"), .final_path = folder.path("a.nc")});
  file.finish();
  file.publish();
  const auto reader = open_arrays(folder.path("a.nc"));
  EXPECT_EQ(reader->names().size(), kVariables + 1U);
  EXPECT_EQ(reader->find("v4999").axes, std::vector<std::string>{"x"});
  EXPECT_EQ(read_all<float>(*reader, "v4999"), (std::vector<float>{4999, 9998}));
}

// Elements that are written later take no memory.
TEST(NetcdfTest, ALayoutMayBeLargerThanMemory) {
  const NetcdfContents all{.dimensions = {{"time", std::int64_t{1} << 20}, {"x", std::int64_t{1} << 20}},
                           .variables = {{.name = "v", .dimensions = {"time", "x"}, .type = kFloat}}};
  const NetcdfLayout layout(all);
  EXPECT_GT(layout.size(), std::uint64_t{1} << 42);
  std::uint64_t bytes = 0;
  layout.for_each_piece([&](std::uint64_t, std::span<const std::byte> piece) { bytes += piece.size(); });
  EXPECT_LT(bytes, 1U << 16);
}

TEST(NetcdfTest, FaultsAreSentences) {
  const TemporaryFolder folder;
  const auto error = [](const NetcdfContents& wrong) { return error_of([&] { const NetcdfLayout layout(wrong); }); };
  NetcdfContents wrong = contents();
  wrong.variables[2].dimensions[1] = "depth";
  EXPECT_EQ(error(wrong), "the variable 't2m' has the dimension 'depth', which does not exist");
  wrong = contents();
  wrong.variables[3].name = "t2m";
  EXPECT_EQ(error(wrong), "two variables have the name 't2m'");
  wrong = contents();
  wrong.variables[3].name = "lon";
  EXPECT_EQ(error(wrong), "the variable 'lon' has the name of a dimension, but is not its coordinate");
  wrong = contents();
  wrong.variables[0].values.pop_back();
  EXPECT_EQ(error(wrong), "the variable 'lat' has 2 values instead of 3");
  wrong = contents();
  wrong.variables[3].name = "a/b";
  EXPECT_EQ(error(wrong), "netCDF does not allow the name 'a/b'");
  EXPECT_EQ(netcdf_name("a/b"), "a_b");
  EXPECT_EQ(netcdf_name("(z) "), "_(z)");
  const std::string none = folder.path("none/a.nc");
  EXPECT_EQ(error_of([&] { NewNetcdfFile(contents(), {.path = none + ".part", .final_path = none}); }),
            none + " cannot be written: No such file or directory");
  EXPECT_NE(error_of([&] {
              NewNetcdfFile(contents(), {.path = none, .final_path = none, .is_owner = false});
            }).find("must be shared by all ranks"),
            std::string::npos);
}

TEST(NetcdfTest, H5dumpReadsIt) {
  if (testing::run_shell("command -v h5dump").exit_code != 0) GTEST_SKIP() << "h5dump is not installed";
  const TemporaryFolder folder;
  const testing::ProgramResult dump =
      testing::run_shell("h5dump -d run -d height '" + written(folder, "a.nc", 2) + "'");
  EXPECT_EQ(dump.exit_code, 0) << dump.output;
  EXPECT_NE(dump.output.find("(0): 0, 1, 2, 3"), std::string::npos) << dump.output;
  EXPECT_NE(dump.output.find("(0): 2.5"), std::string::npos) << dump.output;
  EXPECT_NE(dump.output.find("\"/time\""), std::string::npos) << dump.output;
}

TEST(NetcdfTest, NcdumpReadsIt) {
  if (testing::run_shell("command -v ncdump").exit_code != 0) GTEST_SKIP() << "ncdump is not installed";
  const TemporaryFolder folder;
  const testing::ProgramResult dump = testing::run_shell("ncdump '" + written(folder, "a.nc", 2) + "'");
  EXPECT_EQ(dump.exit_code, 0) << dump.output;
  for (const char* const words :
       {"\ttime = 4 ;\n\tstep = 2 ;\n\tlat = 3 ;\n\tlon = 2 ;", "double time(time) ;", "float lat(lat) ;",
        "lat:units = \"degrees_north\" ;", "float t2m(time, step, lat, lon) ;", "t2m:_FillValue = NaNf ;",
        "int run(time) ;", "double height ;", ":level = 3, -4 ;", "string :names = \"a b\", \"c\" ;",
        " time = 6, 7, 8, 9 ;", " height = 2.5 ;", " lat = -45.5, 0, 45.5 ;"}) {
    EXPECT_NE(dump.output.find(words), std::string::npos) << words << "\n" << dump.output;
  }
  EXPECT_EQ(dump.output.find("double step"), std::string::npos) << dump.output;  // a dimension, but no variable
}

/// A Python that can import the modules, which the variable PYTHON may name; none if there is none.
std::optional<std::string> python_with(const std::string& modules) {
  const char* const given = std::getenv("PYTHON");
  for (const std::string candidate : {given == nullptr ? "" : given, "python3", "/usr/bin/python3"}) {
    if (candidate.empty()) continue;
    if (testing::run_shell(candidate + " -c 'import " + modules + "'").exit_code == 0) return candidate;
  }
  return std::nullopt;
}

TEST(NetcdfTest, XarrayReadsIt) {
  const auto python = python_with("xarray, netCDF4");
  if (!python) GTEST_SKIP() << "no Python with xarray and netCDF4 (PYTHON names one)";
  const TemporaryFolder folder;
  written(folder, "a.nc", 2);
  testing::write_file(folder / "read.py", R"py(
import numpy as np, xarray as xr, netCDF4, sys
d = xr.open_dataset(sys.argv[1], decode_times=xr.coders.CFDatetimeCoder(use_cftime=True))
assert dict(d.sizes) == {"time": 4, "step": 2, "lat": 3, "lon": 2}, d.sizes
assert set(d.coords) == {"time", "lat", "run"}, d.coords
assert str(d.time.values[1]) == "2000-01-01 07:00:00" and d.time.values[1].calendar == "noleap", d.time
assert d.t2m.dims == ("time", "step", "lat", "lon") and d.t2m.dtype == np.float32
assert np.isnan(d.t2m.values.ravel()[1]) and d.t2m.values.ravel()[47] == 47
assert d.t2m.long_name == "température" and list(d.lat.values) == [-45.5, 0, 45.5] and d.height == 2.5
assert d.Conventions == "CF-1.8"
d.close()
d = netCDF4.Dataset(sys.argv[1], "a")
d["t2m"][0, 0] = 7
d.createVariable("more", "f4", ("time", "lon"))[:] = 1
d.close()
d = netCDF4.Dataset(sys.argv[1])
assert d["t2m"][0, 0, 2, 1] == 7 and d["more"][3, 1] == 1 and d["t2m"][0, 1, 0, 0] == 6
)py");
  const testing::ProgramResult read =
      testing::run_shell(*python + " '" + (folder / "read.py") + "' '" + (folder / "a.nc") + "'");
  EXPECT_EQ(read.exit_code, 0) << read.output;
}

TEST(NetcdfTest, H5pyFindsTheScales) {
  const auto python = python_with("h5py");
  if (!python) GTEST_SKIP() << "no Python with h5py (PYTHON names one)";
  const TemporaryFolder folder;
  written(folder, "a.nc", 2);
  testing::write_file(folder / "read.py", R"py(
import h5py, sys
f = h5py.File(sys.argv[1])
assert [list(axis.keys())[0] for axis in f["t2m"].dims][0] == "time"
assert [axis[0].name for axis in f["t2m"].dims] == ["/time", "/step", "/lat", "/lon"]
for i, name in enumerate(["time", "step", "lat", "lon"]):
    assert h5py.h5ds.is_scale(f[name].id) and h5py.h5ds.is_attached(f["t2m"].id, f[name].id, i)
assert f["t2m"][3, 1, 2, 1] == 47
)py");
  const testing::ProgramResult read =
      testing::run_shell(*python + " '" + (folder / "read.py") + "' '" + (folder / "a.nc") + "'");
  EXPECT_EQ(read.exit_code, 0) << read.output;
}

}  // namespace netcdf_test
}  // namespace lockstep::arrays
