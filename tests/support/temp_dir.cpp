#include "support/temp_dir.hpp"

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

namespace spillway::test {

TempDir::TempDir(std::string_view label, const std::filesystem::path& below) {
  const std::filesystem::path pattern = below / (std::string(label) + "-XXXXXX");
  std::string name = pattern.string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::filesystem::filesystem_error("mkdtemp", pattern, std::error_code(errno, std::generic_category()));
  }
  path_ = std::move(name);
}

TempDir::~TempDir() { remove(); }

TempDir::TempDir(TempDir&& other) noexcept : path_(std::exchange(other.path_, {})) {}

TempDir& TempDir::operator=(TempDir&& other) noexcept {
  if (this != &other) {
    remove();
    path_ = std::exchange(other.path_, {});
  }
  return *this;
}

void TempDir::remove() noexcept {
  if (path_.empty()) return;
  std::error_code ignored;  // A destructor has nobody to tell, and the system clears its temporary files.
  std::filesystem::remove_all(path_, ignored);
  path_.clear();
}

}  // namespace spillway::test
