export const QUOTE_RESOURCE = '/api/perp/quote';
export const SESSION_RESOURCE = '/api/sessions/create';
export const AGENTS_RESOURCE = '/api/agents';
