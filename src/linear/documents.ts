/** What is asked of Linear, as text: each names its operation as the code does. */

export const CREATE_ACTIVITY = `mutation CreateActivity($input: AgentActivityCreateInput!) {
  agentActivityCreate(input: $input) { success }
}`;

export const UPDATE_SESSION = `mutation UpdateSession($id: String!, $input: AgentSessionUpdateInput!) {
  agentSessionUpdate(id: $id, input: $input) { success }
}`;

export const UPDATE_ISSUE = `mutation UpdateIssue($id: String!, $input: IssueUpdateInput!) {
  issueUpdate(id: $id, input: $input) { success }
}`;

export const ISSUE = `query Issue($id: String!) {
  issue(id: $id) {
    id identifier title url branchName
    team { id key }
    project { id name }
    labels(first: 50) { nodes { name } }
    state { id type }
    delegate { id }
  }
}`;

export const STARTED_STATES = `query StartedStates($id: String!) {
  team(id: $id) {
    states(filter: { type: { eq: "started" } }, first: 50) { nodes { id position } }
  }
}`;

export const VIEWER = `query Viewer { viewer { id name displayName organization { id } } }`;

/** Newest change first; a page of 25 with 20 prompts each stays far below what a query may cost. */
export const RECENT_SESSIONS = `query RecentSessions($first: Int!, $after: String, $since: DateTimeOrDuration!) {
  agentSessions(first: $first, after: $after, orderBy: updatedAt) {
    nodes {
      id status createdAt updatedAt creator { id }
      appUser { id }
      issue { id identifier title url description team { id key } }
      comment { id body user { id } }
      activities(first: 20, filter: { type: { eq: "prompt" }, createdAt: { gte: $since } }) {
        nodes { id signal createdAt content { ... on AgentActivityPromptContent { body } } }
        pageInfo { hasNextPage }
      }
    }
    pageInfo { hasNextPage endCursor }
  }
}`;

/** All prompts of one session, where there were more than a page of them. */
export const PROMPTS = `query Prompts($id: String!, $since: DateTimeOrDuration!) {
  agentSession(id: $id) {
    activities(first: 250, filter: { type: { eq: "prompt" }, createdAt: { gte: $since } }) {
      nodes { id signal createdAt content { ... on AgentActivityPromptContent { body } } }
    }
  }
}`;
