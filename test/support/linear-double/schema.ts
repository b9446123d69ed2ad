/** The part of Linear's GraphQL API that an agent uses, in the types and names that Linear has. */
import { buildSchema, type GraphQLSchema } from 'graphql';

const SDL = /* GraphQL */ `
  scalar DateTime
  scalar DateTimeOrDuration
  scalar JSON
  scalar JSONObject

  type Query {
    viewer: User!
    issue(id: String!): Issue!
    team(id: String!): Team!
    agentSession(id: String!): AgentSession!
    agentSessions(
      first: Int
      after: String
      includeArchived: Boolean
      orderBy: PaginationOrderBy
    ): AgentSessionConnection!
  }

  type Mutation {
    agentActivityCreate(input: AgentActivityCreateInput!): AgentActivityPayload!
    agentSessionUpdate(id: String!, input: AgentSessionUpdateInput!): AgentSessionPayload!
    issueUpdate(id: String!, input: IssueUpdateInput!): IssuePayload!
  }

  type Organization {
    id: ID!
    name: String!
    urlKey: String!
  }

  type User {
    id: ID!
    name: String!
    displayName: String!
    app: Boolean!
    organization: Organization!
  }

  type Team {
    id: ID!
    key: String!
    name: String!
    states(filter: WorkflowStateFilter, first: Int): WorkflowStateConnection!
  }

  type WorkflowState {
    id: ID!
    name: String!
    type: String!
    position: Float!
  }

  type WorkflowStateConnection {
    nodes: [WorkflowState!]!
    pageInfo: PageInfo!
  }

  input WorkflowStateFilter {
    type: StringComparator
  }

  type Project {
    id: ID!
    name: String!
  }

  type IssueLabel {
    id: ID!
    name: String!
  }

  type IssueLabelConnection {
    nodes: [IssueLabel!]!
    pageInfo: PageInfo!
  }

  type Issue {
    id: ID!
    identifier: String!
    title: String!
    description: String
    url: String!
    branchName: String!
    team: Team!
    project: Project
    labels(first: Int): IssueLabelConnection!
    state: WorkflowState!
    delegate: User
    assignee: User
    createdAt: DateTime!
    updatedAt: DateTime!
  }

  input IssueUpdateInput {
    stateId: String
    delegateId: String
    assigneeId: String
    title: String
  }

  type IssuePayload {
    success: Boolean!
    lastSyncId: Float!
    issue: Issue
  }

  enum AgentSessionStatus {
    pending
    active
    awaitingInput
    complete
    error
    stale
    stopping
  }

  type AgentSessionExternalLink {
    label: String!
    url: String!
  }

  type Comment {
    id: ID!
    body: String!
    user: User
  }

  type AgentSession {
    id: ID!
    status: AgentSessionStatus!
    appUser: User!
    creator: User
    issue: Issue
    comment: Comment
    activities(
      first: Int
      after: String
      last: Int
      before: String
      filter: AgentActivityFilter
      orderBy: PaginationOrderBy
    ): AgentActivityConnection!
    externalLinks: [AgentSessionExternalLink!]!
    plan: JSON
    summary: String
    url: String
    createdAt: DateTime!
    updatedAt: DateTime!
    startedAt: DateTime
    endedAt: DateTime
  }

  type AgentSessionConnection {
    nodes: [AgentSession!]!
    pageInfo: PageInfo!
  }

  input AgentSessionExternalUrlInput {
    label: String!
    url: String!
  }

  input AgentSessionUpdateInput {
    externalLink: String
    externalUrls: [AgentSessionExternalUrlInput!]
    addedExternalUrls: [AgentSessionExternalUrlInput!]
    removedExternalUrls: [String!]
    plan: JSONObject
    summary: String
  }

  type AgentSessionPayload {
    success: Boolean!
    lastSyncId: Float!
    agentSession: AgentSession!
  }

  enum AgentActivityType {
    thought
    action
    elicitation
    response
    error
    prompt
  }

  enum AgentActivitySignal {
    stop
    continue
    auth
    select
  }

  type AgentActivityThoughtContent {
    type: AgentActivityType!
    body: String!
  }

  type AgentActivityActionContent {
    type: AgentActivityType!
    action: String!
    parameter: String!
    result: String
  }

  type AgentActivityElicitationContent {
    type: AgentActivityType!
    body: String!
  }

  type AgentActivityResponseContent {
    type: AgentActivityType!
    body: String!
  }

  type AgentActivityErrorContent {
    type: AgentActivityType!
    body: String!
    reasonCode: String
  }

  type AgentActivityPromptContent {
    type: AgentActivityType!
    body: String!
    title: String
  }

  union AgentActivityContent =
    | AgentActivityThoughtContent
    | AgentActivityActionContent
    | AgentActivityElicitationContent
    | AgentActivityResponseContent
    | AgentActivityErrorContent
    | AgentActivityPromptContent

  type AgentActivity {
    id: ID!
    agentSession: AgentSession!
    content: AgentActivityContent!
    ephemeral: Boolean!
    signal: AgentActivitySignal
    signalMetadata: JSON
    user: User!
    createdAt: DateTime!
    updatedAt: DateTime!
  }

  type AgentActivityConnection {
    nodes: [AgentActivity!]!
    pageInfo: PageInfo!
  }

  input AgentActivityFilter {
    type: StringComparator
    createdAt: DateComparator
  }

  input AgentActivityCreateInput {
    id: String
    agentSessionId: String!
    content: JSONObject!
    ephemeral: Boolean
    signal: AgentActivitySignal
    signalMetadata: JSONObject
  }

  type AgentActivityPayload {
    success: Boolean!
    lastSyncId: Float!
    agentActivity: AgentActivity!
  }

  type PageInfo {
    hasNextPage: Boolean!
    hasPreviousPage: Boolean!
    startCursor: String
    endCursor: String
  }

  enum PaginationOrderBy {
    createdAt
    updatedAt
  }

  input StringComparator {
    eq: String
    neq: String
    in: [String!]
    nin: [String!]
  }

  input DateComparator {
    eq: DateTimeOrDuration
    gt: DateTimeOrDuration
    gte: DateTimeOrDuration
    lt: DateTimeOrDuration
    lte: DateTimeOrDuration
  }
`;

let built: GraphQLSchema | undefined;

/** Built once in a process. */
export const linearSchema = (): GraphQLSchema => {
  built ??= buildSchema(SDL);
  return built;
};
