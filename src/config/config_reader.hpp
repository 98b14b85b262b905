#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <spillway/app/config/block_visitor.hpp>
#include <spillway/app/config/json.hpp>

namespace spillway::app {

/// What reading noticed that is no error, gathered over all blocks so that each kind is said once.
struct ReadingNotes {
  std::vector<std::string> no_effect;  ///< Paths of understood keys without effect.
  std::vector<std::string> stage3;     ///< Those among them that belong to stage 3.
  std::vector<std::string> unknown;    ///< A sentence for each unknown key of DeepSpeed's blocks.
};

/// Reads one block. Absent keys, and null, leave the value as it is; so does "auto" for a number or a truth value in a
/// block of DeepSpeed's, but for an optional one, which it empties. Every function throws ConfigError naming the key's
/// path, what was wanted and what was there.
class ConfigReader final : public BlockVisitor {
 public:
  /// `block` and `notes` must outlive the reader. `path` is empty at the top, else it ends in a dot.
  ConfigReader(const Json::Object& block, std::string path, BlockOwner owner, bool strict, ReadingNotes& notes);

  void boolean(std::string_view key, bool& value) override;
  void integer(std::string_view key, std::uint64_t& value, IntegerRange range) override;
  void number(std::string_view key, double& value, NumberRange range) override;
  void optional_integer(std::string_view key, std::optional<std::uint64_t>& value, IntegerRange range) override;
  void optional_number(std::string_view key, std::optional<double>& value, NumberRange range) override;
  void text(std::string_view key, std::string& value) override;
  void texts(std::string_view key, std::vector<std::string>& values, std::string_view what) override;
  void choice(std::string_view key, std::size_t& index, std::span<const std::string_view> names) override;
  void integers(std::string_view key, std::vector<std::uint64_t>& values, IntegerRange range) override;
  void numbers(std::string_view key, std::span<double> values, NumberRange range) override;
  void block(std::string_view key, BlockOwner owner, const std::function<void(BlockVisitor&)>& visit) override;

  /// Looks at the keys that nobody asked for: notes the inert ones and the unknown ones of DeepSpeed's blocks.
  /// @throws ConfigError: unknown in a block of ours (or anywhere when strict), with the nearest key.
  void finish();

 private:
  const Json* take(std::string_view key);
  const Json* take_number(std::string_view key);
  void note_unused(const Json::Object& object, const std::string& path, bool top_of_block);
  void note_inert(const std::string& path, const Json& value);
  void report_unknown(const std::string& path, std::string_view key, bool top_of_block);

  const Json::Object& block_;
  std::string path_;
  BlockOwner owner_;
  bool strict_;
  ReadingNotes& notes_;
  std::vector<std::string_view> asked_;
};

}  // namespace spillway::app
