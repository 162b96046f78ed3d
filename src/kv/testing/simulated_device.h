#pragma once
// A device that stores in every page what was computed there, so that each row can check all it
// reads.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/step_plan.h"
#include "tensor/cache_layout.h"

namespace hayate::kv {

using Tokens = std::vector<TokenId>;
using GroupPage = std::pair<int32_t, int32_t>;

// What a row computes from, and leaves in the cache: all tokens up to a position, and the
// namespace.
inline uint64_t Digest(const std::string& name_space, const Tokens& tokens, int32_t end) {
  uint64_t digest = std::hash<std::string>{}(name_space);
  for (int32_t i = 0; i < end; ++i) {
    digest =
        (digest ^ static_cast<uint64_t>(tokens[static_cast<size_t>(i)] + 1)) * 0x9E3779B97F4A7C15u;
    digest ^= digest >> 29;
  }
  return digest;
}

// A plan in flight, with what its rows are about, by slot.
struct Submitted {
  StepPlan plan;
  std::map<int32_t, std::pair<std::string, Tokens>> texts;
  std::set<GroupPage> touched;
};

class SimulatedDevice {
 public:
  SimulatedDevice(const CacheLayout& layout, const std::vector<int32_t>& num_pages)
      : layout_(layout) {
    for (const int32_t count : num_pages) {
      pages_.emplace_back(static_cast<size_t>(count),
                          std::vector<uint64_t>(static_cast<size_t>(layout.page_tokens), 0));
    }
  }

  void Execute(const Submitted& step) {
    for (const SlotStart& start : step.plan.starts) tables_.erase(start.slot.value);
    for (const PageUpdate& update : step.plan.page_updates) {
      auto& tables = tables_[update.slot.value];
      tables.resize(layout_.groups.size());
      auto& table = tables[static_cast<size_t>(update.group)];
      table.resize(std::max(table.size(), static_cast<size_t>(update.index) + 1), kNoPage);
      table[static_cast<size_t>(update.index)] = update.page;
    }
    for (const StepRow& row : step.plan.rows) Execute(row, step.texts.at(row.slot.value));
  }

 private:
  void Execute(const StepRow& row, const std::pair<std::string, Tokens>& text) {
    for (size_t g = 0; g < layout_.groups.size(); ++g) {
      const CacheGroup& group = layout_.groups[g];
      const std::vector<PageId>& table = tables_.at(row.slot.value).at(g);
      const auto at = [&](int32_t position) -> uint64_t& {
        const PageId page = table.at(static_cast<size_t>(position / layout_.page_tokens));
        EXPECT_GT(page.value, 0) << "position " << position << " of " << group.name;
        return Page(static_cast<int32_t>(g),
                    page)[static_cast<size_t>(position % layout_.page_tokens)];
      };
      if (group.kind == CacheKind::kState) {
        if (row.begin % layout_.page_tokens != 0) {
          EXPECT_EQ(at(0), Digest(text.first, text.second, row.begin));
        }
        at(0) = Digest(text.first, text.second, row.end);
        continue;
      }
      const bool is_window = group.kind == CacheKind::kWindow;
      const int32_t first =
          is_window ? std::max(row.window_begin, row.begin - group.window + 1) : 0;
      for (int32_t i = first; i < row.begin; ++i) {
        ASSERT_EQ(at(i), Digest(text.first, text.second, i + 1))
            << "position " << i << " of " << group.name;
      }
      for (int32_t i = row.begin; i < row.end; ++i) {
        const uint64_t digest = Digest(text.first, text.second, i + 1);
        if (!is_window && i < row.settled) {
          ASSERT_EQ(at(i), digest) << "settled position " << i << " of " << group.name;
        }
        at(i) = digest;
      }
    }
  }
  std::vector<uint64_t>& Page(int32_t group, PageId page) {
    return pages_[static_cast<size_t>(group)].at(static_cast<size_t>(page.value));
  }

  const CacheLayout& layout_;
  std::vector<std::vector<std::vector<uint64_t>>> pages_;       // [group][page][offset]
  std::map<int32_t, std::vector<std::vector<PageId>>> tables_;  // slot → [group]
};

}  // namespace hayate::kv
