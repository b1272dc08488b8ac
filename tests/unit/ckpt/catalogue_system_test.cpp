// SPDX-License-Identifier: BSD-3-Clause
// What is not there, is no regular file, or is refused by the system.
#include <cerrno>
#include <csignal>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "catalogue.hpp"
#include "checkpoints/disk/disk.hpp"

namespace lockstep::ckpt {
namespace catalogue_system_test {

using namespace std::string_literals;

/// A pwrite that fails; for children only.
bool let_pwrite_fail(int error) {
  static int kept = 0;
  kept = error;
  checkpoints::syscalls().pwrite = [](int, const void*, std::size_t, off_t) -> ssize_t {
    errno = kept;
    return -1;
  };
  return true;
}

/// A small file system of its own at `folder`, which nobody else sees.
bool mount_small(const std::string& folder, unsigned long flags) {
  const int user = ::geteuid() == 0 ? 0 : CLONE_NEWUSER;
  if (::unshare(CLONE_NEWNS | user) != 0) return false;
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return ::mount("tmpfs", folder.c_str(), "tmpfs", flags, "size=64k") == 0;
}

/// A weight file beside a folder `out`, for convert.
void make_source_and_out(Workshop& shop) {
  shop.save();
  fs::create_directory(shop.folder / "out");
}

bool leave_root() {
  return ::geteuid() != 0 || (::setresgid(65534, 65534, 65534) == 0 && ::setresuid(65534, 65534, 65534) == 0);
}

const std::vector<Row>& system_rows() {
  static const std::vector<Row> rows = {
      {"E_NOENT",
       [](Workshop& shop) {
         shop.save();
         shop.path = shop.folder / "ckpt/step-000000000011";
       },
       {"ls", "FILE"},
       Exit::not_found,
       {"FILE: the file or folder does not exist", "DIR/ckpt exists", "did you mean 'step-000000000010'"}},
      {"E_EMPTYDIR",
       [](Workshop& shop) {
         shop.path = shop.folder / "run";
         fs::create_directories(shop.path + "/.tmp-step-000000000001.1.host");
         fs::create_directories(shop.path + "/.bad-step-000000000002.1");
       },
       {"info", "FILE"},
       Exit::not_found,
       {"FILE: it does not contain a checkpoint", "no folder named like step-000000000000",
        "1 unfinished and 1 bad ones were ignored"}},
      {"E_ONLYBAD",
       [](Workshop& shop) {
         for (const int step : {10, 20}) {
           shop.save(step);
           put_bytes(shop.path + "/state.h5", "");
         }
         shop.path = shop.folder / "ckpt";
       },
       {"verify", "--all", "FILE"},
       Exit::corrupt,
       {"BAD  FILE/step-000000000010  ", "BAD  FILE/step-000000000020  ", "the file is empty"}},
      {"E_NOTREG_pipe",
       [](Workshop& shop) { ASSERT_EQ(::mkfifo(shop.path.c_str(), 0600), 0); },
       kVerify,
       Exit::refused,
       {"it is a pipe, not a regular file"}},
      {"E_NOTREG_device",
       [](Workshop& shop) { shop.path = "/dev/zero"; },
       kVerify,
       Exit::refused,
       {"it is a device, not a regular file"}},
      {"E_NOTREG_link",
       [](Workshop& shop) {
         fs::create_symlink("/dev/null", shop.folder / "link");
         shop.path = shop.folder / "link";
       },
       kVerify,
       Exit::refused,
       {"link"}},
      {"E_NOTREG_folder",
       [](Workshop& shop) {
         shop.path = shop.folder / "ckpt/step-000000000010";
         fs::create_directories(shop.path + "/state.h5");
       },
       kVerify,
       Exit::refused,
       {"state.h5: it is a folder, not a regular file"}},
      {"E_NOTREG_socket",
       [](Workshop& shop) {
         sockaddr_un address{};
         address.sun_family = AF_UNIX;
         shop.path.copy(address.sun_path, sizeof address.sun_path - 1);
         const int file = ::socket(AF_UNIX, SOCK_STREAM, 0);
         ASSERT_EQ(::bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
         ::close(file);
       },
       kVerify,
       Exit::refused,
       {"it is a socket, not a regular file"}},
      {"E_PERM",
       [](Workshop& shop) {
         shop.put("x");
         fs::permissions(shop.folder.path(), fs::perms(0755));
         fs::permissions(shop.path, fs::perms::none);
         shop.prepare = leave_root;
       },
       kVerify,
       Exit::io,
       {"open failed: Permission denied (this is user ", "FILE belongs to user ", "has mode 0000"}},
      {"E_ROFS",
       [](Workshop& shop) {
         make_source_and_out(shop);
         shop.prepare = [out = shop.folder / "out"] { return mount_small(out, MS_RDONLY); };
       },
       kConvert,
       Exit::io,
       {"failed: Read-only file system (DIR/out; it is mounted ro"}},
      {"E_NOSPC",
       [](Workshop& shop) {
         checkpoints::Archive large = small_state(10);
         large.put("/model/params/large", checkpoints::array_of(DType::float32, {50'000}, std::vector<float>(50'000)));
         shop.path = checkpoints::write(shop.folder / "ckpt", 10, large);
         fs::create_directory(shop.folder / "out");
         shop.prepare = [out = shop.folder / "out"] { return mount_small(out, 0); };
       },
       kConvert,
       Exit::io,
       {"DIR/out/.tmp-x.npz", "failed: No space left on device (", " bytes and ", "are available there; free"}},
      {"E_QUOTA",
       [](Workshop& shop) {
         make_source_and_out(shop);
         shop.prepare = [] { return let_pwrite_fail(EDQUOT); };
       },
       kConvert,
       Exit::io,
       {"DIR/out/", "pwrite at byte 0 failed: Disk quota exceeded (the quota of user "}},
      {"E_FBIG",
       [](Workshop& shop) {
         make_source_and_out(shop);
         shop.prepare = [] {
           const rlimit limit{.rlim_cur = 600, .rlim_max = 600};  // limit: what is said is captured in a file, too
           ::signal(SIGXFSZ, SIG_IGN);
           return ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
         };
       },
       kConvert,
       Exit::io,
       {"DIR/out/", "failed: File too large (the limit on file sizes: see `ulimit -f`)"}},
      {"E_IO",
       [](Workshop& shop) {
         make_source_and_out(shop);
         shop.prepare = [] { return let_pwrite_fail(EIO); };
       },
       kConvert,
       Exit::io,
       {"DIR/out/", "pwrite at byte 0 failed: Input/output error"}},
  };
  return rows;
}

class SystemRowTest : public CatalogueTest {};

TEST_P(SystemRowTest, SaysWhatItIsAndReturnsItsCode) { expect_row(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rows, SystemRowTest, ::testing::ValuesIn(system_rows()), name_of_row);

}  // namespace catalogue_system_test
}  // namespace lockstep::ckpt
