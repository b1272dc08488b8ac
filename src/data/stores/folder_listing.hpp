// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/stores/list_text.hpp"

namespace lockstep::data {

/// A folder and the time of its last change.
struct ListedFolder {
  std::string path;  ///< below the root; "." = the root
  std::int64_t modified_ns = 0;
};

/// The image files below the class folders of a root folder.
struct FolderListing {
  std::vector<std::string> classes;        ///< subfolders of the root, sorted by bytes
  std::vector<std::string> empty_classes;  ///< those without an image
  std::vector<ListedFolder> folders;       ///< all folders, including the root
  std::vector<std::string> passed_over;    ///< the first files that are not images, and hidden files and folders
  std::int64_t passed_over_count = 0;
  std::string lines;  ///< "<path below the root> <class number>" for each image, sorted by class, folder and name
};

/// Lists the images at any depth below a folder, without classes. Each line is a path below the root.
/// @throws DataError  a folder cannot be read, there are no images, or a file has a format that this build does not
/// read
FolderListing list_images(const std::string& root);

/// A list of the images below a folder: a plain list file with comment lines about the folder.
struct FolderList {
  ListText text;                           ///< paths below the folder, with class numbers
  std::vector<std::string> classes;        ///< names of the classes
  std::vector<std::string> empty_classes;  ///< classes without images
  std::string passed_over;                 ///< remark about files that are not images; empty = none
};

/// Lists the images below a folder, or maps an earlier list of it.
///
/// A list is the file `<cache>/<hash of the path>.list`. Its first line is
///
///     # lockstep-list 2 <root> <number of folders> <newest folder time, ns> <digest of the rest>
///
/// followed by lines "# folder <time, ns> <path>" and, where needed, "# empty <class>" and "# skipped <remark>". It
/// is valid while the time of every folder is the same: one system call per folder. A list is written completely and
/// then renamed. A folder that changed in the last 2 s is not cached, because another change could have the same time.
/// @param cache  folder of the lists; "" = no cache. If it cannot be written, the list stays in memory
/// @throws DataError  as list_folder
FolderList cached_list(const std::string& root, const std::string& cache);

/// The root folder in the first line of a list that cached_list has written; "" = it is another list.
std::string root_in(std::string_view list);

}  // namespace lockstep::data
