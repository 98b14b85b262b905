#pragma once

#include <span>

#include <spillway/queue/row_format.hpp>

namespace spillway::distributed {
class Collective;
}

namespace spillway::queue {

/// One after another, as copies. All of one kind, at least one.
[[nodiscard]] StoredRows join_rows(std::span<const StoredRows> parts);

/// The rows of all ranks in rank order, as they are stored: nothing is rounded again. Each rank may have any number.
/// @throws as Collective.
[[nodiscard]] StoredRows gather_stored_rows(const StoredRows& own, distributed::Collective& ranks);

/// Gives outgoing[r] to rank r. @returns what the ranks had for this one, in rank order. @throws as Collective.
[[nodiscard]] StoredRows exchange_stored_rows(std::span<const StoredRows> outgoing, distributed::Collective& ranks);

}  // namespace spillway::queue
