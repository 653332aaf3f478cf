"""A framing as SQL: what people's choices come down to, and what a notebook may write by hand."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import InvalidConfig
from .schema import canonical_json, short_hash

RETURN_IS_POSITIVE = "episode_return > 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """SQL expressions that say what is state, action and reward.

    Attributes:
        state: text expression, the state key.
        action: text expression, the action name.
        reward: numeric expression, reward of the step; NULL is unknown and never 0.
        discount: γ, between 0 and 1.
        success: boolean expression over ``episode_return`` (undiscounted sum of the framed rewards of an episode).
        title: what people call it.
        sentence: what it does, in words.
    """

    state: str
    action: str = "action"
    reward: str = "reward"
    discount: float = 0.99
    success: str = RETURN_IS_POSITIVE
    title: str = "custom framing"
    sentence: str = ""

    def __post_init__(self) -> None:
        """Check the discount."""
        check_discount(self.discount)

    @property
    def token(self) -> str:
        """Short hash that names the framed table."""
        return short_hash(canonical_json([self.state, self.action, self.reward, self.success, self.discount]))


def check_discount(discount: float) -> None:
    """Refuse a discount that no decision process has.

    Raises:
        InvalidConfig: it doesn't lie between 0 and 1.
    """
    if not 0 <= discount <= 1:
        raise InvalidConfig(f"The discount is {discount}; it must lie between 0 and 1.")


# The tools that an episode called before a step, which no window lists in passable time; see offrl_core.framing.
TOOLS_USED = "tools_used"

# Steps without a tool that say something: the agent's plain messages and final answers, whatever the log calls them.
SAYS_SOMETHING = "tool IS NULL AND action_type NOT IN ('tool_call', 'env_action', 'invalid', 'handoff')"


def with_one_message(action: str) -> str:
    """An action expression that gives all messages and final answers one name."""
    return f"CASE WHEN {SAYS_SOMETHING} THEN 'message' ELSE {action} END"


# Action expressions that keep the tool's own name, so that what the log offers can be compared with them.
NAMES_TOOLS = ("action", with_one_message("action"))
