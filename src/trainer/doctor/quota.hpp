// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::trainer {

/// Bytes that the quota of this user leaves on the file system of a folder. Local file systems say it, network file
/// systems do not.
/// @return  none = there is no quota, or the system does not say
std::optional<std::int64_t> quota_left(const std::string& folder);

/// The device of a file system, from the lines of /proc/self/mountinfo, such as
/// "36 35 98:0 / /home rw,noatime - ext4 /dev/sda1 rw,usrquota".
/// @param number  major and minor number, such as "98:0"
/// @return        "" = there is none
std::string device_in(const std::string& lines, const std::string& number);

}  // namespace lockstep::trainer
