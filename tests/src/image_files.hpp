#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

namespace spillway::test {

/// The bytes of an IDX file: unsigned bytes of these sizes.
[[nodiscard]] std::string idx_bytes(std::initializer_list<std::uint32_t> sizes, std::string_view content);

/// The bytes of a gzip file of one member.
[[nodiscard]] std::string gzipped(std::string_view content);

void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace spillway::test
