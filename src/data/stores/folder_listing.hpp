// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// Lists images like torchvision's ImageFolder: the subfolders are the classes, and images can be at any depth below
/// them. Symbolic links are followed. Files count as images if their names end in .jpg, .jpeg, .png, .ppm, .bmp, .pgm
/// or .webp, in any case. Hidden files and folders (names with a leading dot, and __MACOSX) and folders with a line
/// break in their name are passed over. Files are not opened and, where the file system states their type, not
/// examined.
/// @throws DataError  a folder cannot be read, there are no class folders, or a file has a format that this build does
///                    not read (.tif, .tiff, and possibly .webp)
FolderListing list_folder(const std::string& root);

/// Lists the images at any depth below a folder, without classes. Each line is a path below the root.
/// @throws DataError  a folder cannot be read, there are no images, or a file has a format that this build does not
/// read
FolderListing list_images(const std::string& root);

/// The time of the last change of a folder. @return  -1 = it cannot be examined
std::int64_t modified_ns_of(const std::string& folder) noexcept;

}  // namespace lockstep::data
