#pragma once
// ops/drafting on a CUDA device.

#include "ops/drafting/draft_logits.h"
#include "ops/drafting/proposals.h"

namespace hayate::ops::sm90 {

void ListProposals(Stream stream, const ListProposalsArgs& args);
void ListProposalRows(Stream stream, const ProposalRowsArgs& args);
void ShiftPositions(Stream stream, const ShiftPositionsArgs& args);
void ListDraftBlocks(Stream stream, const DraftBlocksArgs& args);
void AddAnchors(Stream stream, const AddAnchorsArgs& args);

void MarkovGuess(Stream stream, const MarkovGuessArgs& args);
void MapLogits(Stream stream, const MapLogitsArgs& args);

}  // namespace hayate::ops::sm90
